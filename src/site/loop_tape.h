// The calls by which loops put values on tapes and take them back: what control/loop_tape.h says of
// them.
#pragma once
#include "control/loop_tape.h"

namespace postern::internal {

Tensors write_tapes(const StepsOfCall& steps, TensorSpan tickets, TensorSpan leaves,
                    const LoopTapeOptions& options);
Tensors read_tapes(const StepsOfCall& steps, TensorSpan tickets, const Types& types,
                   const LoopTapeOptions& options);
void free_tapes(const Tensor& after, TensorSpan tickets, const LoopTapeOptions& options);

/// Returns the options of a call with these attributes.
LoopTapeOptions tape_options(const Attributes& attributes);
/// Returns the room for steps of a call with these attributes.
std::int64_t room_for_steps(const Attributes& attributes);

/// Throws TypeError for a site of one of these, from a file, that they cannot have written.
void check_loop_tape_site(const SiteSpec& site);

/// The functions behind them, by the names that saved programs know.
constexpr const char *tape_write = "postern.tape.write", *tape_read = "postern.tape.read",
                     *tape_free = "postern.tape.free";

}  // namespace postern::internal
