// The calls by which loops fill and read stores: what control/residual_store.h says of them.
#pragma once
#include "control/residual_store.h"

namespace postern::internal {

Tensors write_residuals(const StepsOfCall& steps, TensorSpan handles, TensorSpan leaves,
                        const ResidualOptions& options);
Tensors read_residuals(const StepsOfCall& steps, TensorSpan handles, const Types& types,
                       const ResidualOptions& options);
void free_residuals(const Tensor& after, TensorSpan handles, const ResidualOptions& options);

/// Returns the options of a call with these attributes.
ResidualOptions residual_options(const Attributes& attributes);
/// Returns the room for steps of a call with these attributes.
std::int64_t room_for_steps(const Attributes& attributes);

/// Throws TypeError for a site of one of these, from a file, that they cannot have written.
void check_residual_site(const SiteSpec& site);

/// The functions behind them, by the names that saved programs know.
constexpr const char *residual_write = "postern.tape.write", *residual_read = "postern.tape.read",
                     *residual_free = "postern.tape.free";

}  // namespace postern::internal
