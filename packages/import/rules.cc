// Lists of operations: where XLA ends the process, hangs, or folds to something else.
#include "rules.h"

#include <algorithm>

#include "reader.h"
#include "spi.h"

namespace postern::internal::imported {

namespace {

using Names = std::string_view;

/// Whether the name is among those between spaces.
bool is_among(Names names, std::string_view name) {
  if (name.empty()) return false;  // as "stablehlo." is, and found everywhere
  for (std::size_t at = 0; (at = names.find(name, at)) != names.npos; at += name.size()) {
    const bool begins = at == 0 || names[at - 1] == ' ';
    const std::size_t end = at + name.size();
    if (begins && (end == names.size() || names[end] == ' ')) return true;
  }
  return false;
}

constexpr Names collectives =
    "all_gather all_reduce all_to_all collective_broadcast collective_permute cross-replica-sum "
    "reduce_scatter";
constexpr Names queues = "infeed outfeed recv send";  // nobody is at their other end
constexpr Names applying = "map reduce reduce_window scatter select_and_scatter sort";
constexpr Names not_applied =
    "cholesky fft infeed outfeed partition_id recv reduce_window replica_id rng scatter "
    "select_and_scatter send sort triangular_solve while";
constexpr Names of_shapes =
    "dynamic_broadcast_in_dim dynamic_conv dynamic_gather dynamic_iota dynamic_pad dynamic_reshape "
    "real_dynamic_slice";
constexpr Names moving =
    "broadcast_in_dim convolution dot_general dynamic_broadcast_in_dim dynamic_conv dynamic_gather "
    "gather transpose";
/// They hand values on, or have no operands that XLA could fold.
constexpr Names not_folded =
    "after_all call case composite constant create_token func get_dimension_size get_tuple_element "
    "if optimization_barrier return rng tuple while";

/// As they stand in types; empty for what has no type of ours.
std::string_view element_of(std::string_view type) {
  if (!type.starts_with("tensor<") || !type.ends_with(">")) return {};
  type = type.substr(7, type.size() - 8);
  while (!type.empty() && (type.find_first_of("0123456789?") == 0)) {
    const std::size_t x = type.find('x');
    if (x == type.npos) break;
    type.remove_prefix(x + 1);
  }
  return type;
}

[[noreturn]] void refuse(std::string_view name, std::string_view why) {
  throw Error(ErrorCode::unimplemented, fmt::format("operation '{}' {}", name, why));
}

}  // namespace

std::string_view bare_name(std::string_view operation) {
  const bool versioned = operation.starts_with("vhlo.");
  operation.remove_prefix(std::min(operation.find('.') + 1, operation.size()));
  if (versioned) operation = operation.substr(0, operation.rfind("_v"));
  return operation;
}

bool is_integer_type(std::string_view type) {
  const std::string_view element = element_of(type);
  return element != "i1" && (element.starts_with("i") || element.starts_with("ui"));
}

bool types_matter(std::string_view name) {
  return is_among(collectives, name) ||
         is_among("bitcast_convert concatenate remainder sort", name);
}

void require_possible(std::string_view name, std::span<const std::string_view> operands,
                      std::span<const std::string_view> results) {
  if (is_among(queues, name))
    refuse(name, "waits for a queue of the host's, and there is none: use custom calls");
  if (is_among(collectives, name) && !std::ranges::equal(operands, results))
    refuse(name, fmt::format("gives what it is given on one device, which is what can be loaded; "
                             "it has ({}) -> ({})",
                             fmt::join(operands, ", "), fmt::join(results, ", ")));
  if (operands.empty() || results.empty()) return;
  const std::string_view from = element_of(operands[0]), to = element_of(results[0]);
  const auto two_bits = [](std::string_view type) {
    return element_of(type) == "i2" || element_of(type) == "ui2";
  };
  if (((name == "concatenate" && operands.size() > 1) || name == "sort") &&
      std::ranges::any_of(operands, two_bits))
    refuse(name, "of 2-bit integers is more than the plug-in can do");
  if (name == "remainder" && from.starts_with("complex"))
    refuse(name, "of complex numbers is more than the plug-in can do");
  const bool odd = (from == "i1") != (to == "i1") ||
                   (from != to && from.starts_with("complex") && to.starts_with("complex"));
  if (name == "bitcast_convert" && odd)
    refuse(name,
           fmt::format("from {} to {} is more than the plug-in can do", operands[0], results[0]));
}

bool applies_bodies(std::string_view name) { return is_among(applying, name); }

void AppliedBodies::holds(const std::string& function, bool applied, std::string_view name,
                          std::string_view target, std::size_t where) {
  const bool custom = name == "custom_call" && !target.starts_with("mhlo.") &&
                      !target.starts_with("stablehlo.") && !target.starts_with("chlo.");
  if (!custom && !is_among(not_applied, name) && !is_among(collectives, name)) return;
  std::string what = fmt::format("operation '{}'", name);
  if (custom) what = fmt::format("custom call '{}'", target);
  Found found{fmt::format("{} cannot be in the body of a reduction, scatter, sort or map, nor in a "
                          "function that it calls",
                          what),
              where};
  if (!applied)
    found_.try_emplace(function, std::move(found));
  else if (!in_body_)
    in_body_ = std::move(found);
}

void AppliedBodies::calls(bool applied, const std::string& callee) {
  if (applied) called_.insert(callee);
}

std::optional<AppliedBodies::Found> AppliedBodies::refused(const CallGraph& calls) const {
  if (in_body_) return in_body_;
  std::vector<std::string> to_visit(called_.begin(), called_.end());
  std::set<std::string> seen;
  while (!to_visit.empty()) {
    const std::string function = std::move(to_visit.back());
    to_visit.pop_back();
    if (!seen.insert(function).second) continue;
    if (const auto found = found_.find(function); found != found_.end()) return found->second;
    if (const auto callees = calls.find(function); callees != calls.end())
      for (const auto& callee : callees->second) to_visit.push_back(callee.first);
  }
  return {};
}

bool folds_wrongly(std::string_view name, std::string_view first, bool constants) {
  if (constants && !moves_only(name) && !takes_shapes(name) && !is_among(not_folded, name))
    return true;
  // XLA makes constants of what is none, as x - x.
  return (name == "divide" || name == "remainder" || name == "count_leading_zeros") &&
         is_integer_type(first);
}

bool moves_only(std::string_view name) { return name == "broadcast_in_dim" || name == "reshape"; }

bool moves_axes(std::string_view name) { return is_among(moving, name); }

std::string in_bytes(std::string_view type) {
  const std::string_view element = element_of(type);
  if (std::ranges::count(type, 'x') < 2) return {};
  for (const auto& [packed, bytes] :
       {std::pair{"i2", "i8"}, {"i4", "i8"}, {"ui2", "ui8"}, {"ui4", "ui8"}, {"f4E2M1FN", "f32"}})
    if (element == packed)
      return fmt::format("{}{}>", type.substr(0, type.size() - element.size() - 1), bytes);
  return {};
}

bool takes_shapes(std::string_view name) { return is_among(of_shapes, name); }

void Calls::add(std::size_t at_depth) {
  ++count;
  depth = std::max(depth, at_depth);
}

/// Symbols that name no function are none of its calls.
static void require_bounded(const CallGraph& calls, const std::vector<std::string>& callers_first) {
  constexpr std::size_t deepest = 100, most = 1'000'000;  // in threads of 512 KiB too
  std::map<std::string_view, Calls> made;  // as often as their callers are, and in how many
  std::size_t total = 0;
  for (const std::string& function : callers_first) {
    const Calls own = made[function];
    for (const auto& [callee, how] : calls.find(function)->second) {
      if (!calls.contains(callee)) continue;
      Calls& all = made[callee];
      const std::size_t times = std::max<std::size_t>(own.count, 1) * how.count;
      all.count += times;
      all.depth = std::max(all.depth, own.depth + how.depth);
      total += times;
      if (total > most)
        throw Error(ErrorCode::resource_exhausted,
                    fmt::format("its functions are called more than {} times, as often as those "
                                "that call them",
                                most));
      if (all.depth > deepest)
        throw Error(
            ErrorCode::resource_exhausted,
            fmt::format("calls of functions are more than {} deep in one another", deepest));
    }
  }
}

std::vector<std::string> callers_first(const CallGraph& calls) {
  std::map<std::string_view, std::size_t> callers;
  for (const auto& [function, callees] : calls)
    for (const auto& [callee, how] : callees) ++callers[callee];
  std::vector<std::string> out;
  for (const auto& [function, callees] : calls)
    if (!callers.contains(function)) out.push_back(function);
  for (std::size_t done = 0; done < out.size(); ++done)
    for (const auto& [callee, how] : calls.find(out[done])->second)
      if (--callers[callee] == 0 && calls.contains(callee)) out.push_back(callee);
  if (out.size() < calls.size())
    throw Error(ErrorCode::unimplemented, "functions of the module call themselves");
  require_bounded(calls, out);
  return out;
}

}  // namespace postern::internal::imported
