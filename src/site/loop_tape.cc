// The calls by which loops put values on tapes and take them back.
#include "control/tape.h"
#include "core/check.h"
#include "site/site.h"
#include "transform/walk.h"

namespace postern {

namespace {

/// A call of one of ours, named as its loop: errors say where that is.
Tensors at_tape(const char* function, Effect effect, const Types& results,
                std::span<const Tensor> operands, const TapeOptions& options,
                std::int64_t room = 1) {
  SiteSpec site;
  site.name = "while_loop";
  site.place = PlaceScope::current();
  site.function = tape_function(function);
  site.named = {function, {}};
  if (options.memory > 0) site.named.attributes.set("memory", options.memory);
  if (!options.file.empty()) site.named.attributes.set("file", options.file);
  if (room > 1) site.named.attributes.set("room", room);
  site.operands = types_of(operands);
  site.results = results;
  site.effect = effect;
  return at_site(std::move(site), operands);
}

Tensors operands_of(const StepsOfCall& steps, std::span<const Tensor> tickets) {
  Tensors out{steps.first};
  if (steps.count.has_value()) out.push_back(steps.count);
  append(out, tickets);
  return out;
}

}  // namespace

Tensors write_tapes(const StepsOfCall& steps, std::span<const Tensor> tickets,
                    std::span<const Tensor> leaves, const TapeOptions& options) {
  if (tickets.empty()) return {};
  Tensors operands = operands_of(steps, tickets);
  append(operands, leaves);
  return at_tape(tape_write, Effect::unordered, types_of(tickets), operands, options, steps.room);
}

Tensors read_tapes(const StepsOfCall& steps, std::span<const Tensor> tickets, const Types& types,
                   const TapeOptions& options) {
  if (tickets.empty()) return {};
  return at_tape(tape_read, Effect::pure, types, operands_of(steps, tickets), options, steps.room);
}

void free_tapes(const Tensor& after, std::span<const Tensor> tickets, const TapeOptions& options) {
  at_tape(tape_free, Effect::unordered, {}, operands_of({after}, tickets), options);
}

}  // namespace postern
