// Programs from elsewhere: what they take and give, and their custom calls as sites.
#pragma once
#include <postern/attributes.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/site_spec.h"

namespace postern::internal::foreign {

struct Foreign {
  std::vector<Type> inputs, outputs;
  std::vector<int> parameters;  // the inputs that the module takes
  std::vector<SitePtr> sites;
  std::vector<std::string> handlers;  // FFI handlers that it calls
  std::string text;                   // with the custom calls that are sites made calls of ours
};

/// Reads a module: StableHLO in its own form, as JAX's `lower().as_text()` prints it, a portable
/// artifact, or what `jax.export` writes. Custom calls become sites that call the function of the
/// target's name, but for targets that XLA serves itself or that have an FFI handler. `name` is for
/// errors and places. Throws Error: invalid_argument for what is no such module, data_loss for a
/// damaged one, unimplemented for what a file may say that we cannot run.
Foreign read_foreign(std::string_view text, const std::string& name);

/// A custom call that a host function serves.
struct ForeignCall {
  std::string target;
  Attributes attributes;
  std::vector<Type> operands, results;        // without tokens
  bool side_effect = false, ordered = false;  // ordered: it hands on a token
  Place place;
};
SitePtr site_of(ForeignCall call);

/// Who serves a target. FFI handlers are noted, as XLA must know them. Those of XLA's own that say
/// where parts of values lie give what they are given: there is one device.
enum class Server { host, handler, xla, nobody };
/// Throws Error for what only XLA itself may write: it trusts their operands.
Server server_of(const std::string& target);
/// Throws Error unless operands and results are what XLA, or nobody, must find there: it dies of
/// others.
void require_signature(const std::string& target, Server server,
                       std::span<const std::string> operands, std::span<const std::string> results);

/// Says why such a call is refused.
std::string brings_computations(std::string_view target);

/// Reads tensor<2xf32> and the like. Throws Error.
Type mlir_type(std::string_view text);

}  // namespace postern::internal::foreign
