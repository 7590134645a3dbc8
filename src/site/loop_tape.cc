// The calls by which loops put values on tapes and take them back.
#include "control/tape.h"
#include "core/check.h"
#include "site/site.h"
#include "transform/walk.h"

namespace postern {

namespace {

/// A call of one of ours, named as its loop: errors say where that is.
Tensors at_tape(const char* function, Effect effect, const Types& results,
                std::span<const Tensor> operands, const TapeOptions& options) {
  SiteSpec site;
  site.name = "while_loop";
  site.place = PlaceScope::current();
  site.function = tape_function(function);
  site.named = {function, {}};
  if (options.memory > 0) site.named.attributes.set("memory", options.memory);
  if (!options.file.empty()) site.named.attributes.set("file", options.file);
  site.operands = types_of(operands);
  site.results = results;
  site.effect = effect;
  return at_site(std::move(site), operands);
}

Tensors with(const Tensor& first, std::span<const Tensor> a, std::span<const Tensor> b = {}) {
  Tensors out{first};
  append(out, a);
  append(out, b);
  return out;
}

}  // namespace

Tensors write_tapes(const Tensor& k, std::span<const Tensor> tickets,
                    std::span<const Tensor> leaves, const TapeOptions& options) {
  if (tickets.empty()) return {};
  return at_tape(tape_write, Effect::unordered, types_of(tickets), with(k, tickets, leaves),
                 options);
}

Tensors read_tapes(const Tensor& k, std::span<const Tensor> tickets, const Types& steps,
                   const TapeOptions& options) {
  if (tickets.empty()) return {};
  return at_tape(tape_read, Effect::pure, steps, with(k, tickets), options);
}

void free_tapes(const Tensor& after, std::span<const Tensor> tickets, const TapeOptions& options) {
  at_tape(tape_free, Effect::unordered, {}, with(after, tickets), options);
}

}  // namespace postern
