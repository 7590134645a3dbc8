// Reading sharding rules, and what they say of a kernel's operands.
#include "block/sharding_rule.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/sharding.h"
#include "core/text.h"
#include "ops/shape.h"

namespace postern::internal::blocks {

namespace {

using Names = std::vector<std::string>;

constexpr const char* leading = "...";
constexpr std::string_view blanks = " \t\n";

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = text.find_first_not_of(blanks, at)) != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(blanks, at), text.size());
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

std::vector<std::string_view> pieces(std::string_view text, std::string_view by) {
  std::vector<std::string_view> out;
  for (std::size_t end = 0; (end = text.find(by)) != text.npos;) {
    out.push_back(text.substr(0, end));
    text.remove_prefix(end + by.size());
  }
  out.push_back(text);
  return out;
}

template <class List>
bool has(const List& list, const std::string& name) {
  return std::ranges::find(list, name) != list.end();
}

bool any_has(const std::vector<Factors>& all, const std::string& factor) {
  return std::ranges::any_of(all, [&](const Factors& f) { return has(f, factor); });
}

/// Reads a rule, of which errors say where it stands.
class Reader {
 public:
  Reader(const std::string& what, std::string_view text) : what_(what), text_(text) {}

  ShardingRule read() const {
    const auto clauses = pieces(text_, ";");
    const auto sides = pieces(clauses[0], "->");
    require(sides.size() == 2, "between operands and results there must be one '->'");
    ShardingRule rule{side(sides[0]), side(sides[1]), {}, {}};
    for (std::size_t i = 1; i < clauses.size(); ++i) clause(rule, clauses[i]);
    return rule;
  }

 private:
  void require(bool ok, const std::string& problem) const {
    check(ok, "{}: the sharding rule {} is none: {}", what_, quoted(text_), problem);
  }

  std::vector<Factors> side(std::string_view text) const {
    std::vector<Factors> out;
    for (const std::string_view piece : pieces(text, ",")) {
      out.push_back(words(piece));
      const Factors& all = out.back();
      for (const std::string& word : all) {
        require(word == leading || is_name(word),
                fmt::format("'{}' is no name of an axis", printable(word)));
        require(word == "_" || std::ranges::count(all, word) == 1,
                fmt::format("'{}' stands twice in '{}'", word, fmt::join(all, " ")));
      }
    }
    return out;
  }

  void clause(ShardingRule& rule, std::string_view text) const {
    std::vector<std::string> names = words(text);
    const std::string word = names.empty() ? "" : names.front();
    require(word == "whole" || word == "sum",
            fmt::format("behind ';' comes whole or sum, and names; not '{}'", printable(word)));
    names.erase(names.begin());
    for (const std::string& name : names) {
      require(any_has(rule.operands, name) && name != "_",
              fmt::format("no operand has the '{}' of {}", printable(name), word));
      require(word == "whole" || !any_has(rule.results, name),
              fmt::format("a result has the '{}' of sum", name));
    }
    auto& list = word == "sum" ? rule.summed : rule.whole;
    list.insert(list.end(), names.begin(), names.end());
  }

  const std::string& what_;
  const std::string_view text_;
};

std::string side_text(const std::vector<Factors>& side) {
  Separator comma;
  std::string out;
  for (const Factors& factors : side) out += fmt::format("{}{}", comma(), fmt::join(factors, " "));
  return out;
}

/// Fits the factors of a rule to types: "..." becomes one for each axis that is left, "_" an empty
/// one. Axes of the same factor must have the extent of the first that was met.
class Extents {
 public:
  explicit Extents(const std::string& what) : what_(what) {}

  void fit(std::vector<Factors>& side, const Types& types, const char* word) {
    if (types.empty() && side.size() == 1 && side[0].empty()) side.clear();
    check(side.size() == types.size(), "{}: its sharding rule is for {}, there are {}", what_,
          plural(side.size(), word), types.size());
    for (std::size_t i = 0; i < side.size(); ++i)
      fit(side[i], types[i], fmt::format("{} {}", word, i));
  }

 private:
  void fit(Factors& factors, const Type& type, const std::string& of) {
    const auto rank = static_cast<std::size_t>(type.rank());
    const auto dots = std::ranges::find(factors, leading);
    const bool has_dots = dots != factors.end();
    check(has_dots ? factors.size() - 1 <= rank : factors.size() == rank,
          "{}: its sharding rule says '{}' of {}, which is {}", what_, fmt::join(factors, " "), of,
          to_string(type));
    if (has_dots) {
      const auto place = dots - factors.begin();
      const std::size_t count = rank + 1 - factors.size();
      factors.erase(dots);
      for (std::size_t d = 0; d < count; ++d)
        factors.insert(factors.begin() + place, fmt::format("{}{}", leading, d));
    }
    for (std::size_t d = 0; d < rank; ++d) {
      if (factors[d] == "_") factors[d].clear();
      if (factors[d].empty()) continue;
      const auto found =
          known_.try_emplace(factors[d], type.dims[d], fmt::format("axis {} of {}", d, of)).first;
      const auto& [extent, axis] = found->second;
      check(extent == type.dims[d],
            "{}: its sharding rule has '{}' for {}, of {}, and for axis {} of {}, of {}", what_,
            factors[d], axis, extent, d, of, type.dims[d]);
    }
  }

  const std::string& what_;
  std::map<std::string, std::pair<std::int64_t, std::string>> known_;
};

}  // namespace

bool ShardingRule::may_cut(const std::string& factor) const {
  if (factor.empty() || has(whole, factor)) return false;
  return has(summed, factor) ||
         std::ranges::all_of(results, [&](const Factors& f) { return has(f, factor); });
}

ShardingRule parse_sharding(const std::string& what, std::string_view text) {
  return Reader(what, text).read();
}

std::string to_string(const ShardingRule& rule) {
  std::string out = fmt::format("{} -> {}", side_text(rule.operands), side_text(rule.results));
  if (!rule.whole.empty()) out += fmt::format("; whole {}", fmt::join(rule.whole, " "));
  if (!rule.summed.empty()) out += fmt::format("; sum {}", fmt::join(rule.summed, " "));
  return out;
}

ShardingRule fitted(const std::string& what, ShardingRule rule, const Types& operands,
                    const Types& results) {
  Extents extents(what);
  extents.fit(rule.operands, operands, "operand");
  extents.fit(rule.results, results, "result");
  for (const Type& t : results)
    check(rule.summed.empty() || t.dtype != DType::pred,
          "{}: its sharding rule sums up results, and one is {}", what, to_string(t));
  return rule;
}

ShardingRule with_axis_in_front(ShardingRule rule, const std::string& factor,
                                const std::vector<bool>& mapped) {
  for (std::size_t i = 0; i < rule.operands.size(); ++i)
    if (mapped[i]) rule.operands[i].insert(rule.operands[i].begin(), factor);
  for (Factors& f : rule.results) f.insert(f.begin(), factor);
  return rule;
}

std::int64_t KernelCut::parts(const std::string& factor) const {
  const auto found = std::ranges::find(along, factor, [](const auto& a) { return a.first; });
  return found == along.end() ? 1 : piece_count(*mesh, found->second);
}

Type KernelCut::part(Type whole, const Factors& factors) const {
  for (std::size_t d = 0; d < factors.size(); ++d) whole.dims[d] /= parts(factors[d]);
  return whole;
}

std::optional<KernelCut> cut_of(const ShardingRule& rule, const Types& operands,
                                const std::vector<Layout>& layouts) {
  KernelCut cut{.mesh = nullptr, .in = {}, .out = {}, .summed = {}, .along = {}};
  std::set<std::string> used;  // mesh axes
  const auto is_cut = [&](const std::string& factor) {
    return std::ranges::any_of(cut.along, [&](const auto& along) { return along.first == factor; });
  };
  const auto is_used = [&](const std::string& name) { return used.contains(name); };
  // Cuts the kernel along a factor by these mesh axes, unless an earlier axis has taken either.
  const auto cut_along = [&](const std::string& factor, const Names& names, std::int64_t extent) {
    if (names.empty() || !rule.may_cut(factor)) return;
    if (is_cut(factor) || std::ranges::any_of(names, is_used)) return;
    if (extent % piece_count(*cut.mesh, names) != 0) return;  // parts must be alike
    used.insert(names.begin(), names.end());
    cut.along.emplace_back(factor, names);
    if (has(rule.summed, factor)) cut.summed.insert(cut.summed.end(), names.begin(), names.end());
  };
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!layouts[i].is_cut() || (cut.mesh && !(*cut.mesh == *layouts[i].mesh))) continue;
    cut.mesh = layouts[i].mesh;
    for (std::size_t d = 0; d < rule.operands[i].size(); ++d)
      cut_along(rule.operands[i][d], layouts[i].axes[d], operands[i].dims[d]);
  }
  if (cut.along.empty()) return std::nullopt;
  const auto spec = [&](const Factors& factors) {
    std::vector<Names> parts(factors.size());  // by axis: the mesh axes that cut it
    for (std::size_t d = 0; d < factors.size(); ++d)
      for (const auto& [factor, names] : cut.along)
        if (factor == factors[d]) parts[d] = names;
    return P(std::move(parts));
  };
  for (const Factors& f : rule.operands) cut.in.push_back(spec(f));
  for (const Factors& f : rule.results) cut.out.push_back(spec(f));
  return cut;
}

// All numbers of the one must be numbers of the other, but f32 is enough for any integer. Of floats
// of the same width, and of those below 16 bits, none holds all numbers of another.
bool converts(DType from, DType to) {
  if (from == to) return true;
  if (from == DType::token || to == DType::token) return false;
  if (is_complex(from) && !is_complex(to)) return false;
  const DType real_from = real_dtype(from), real_to = real_dtype(to);
  if (real_from == real_to || real_from == DType::pred) return true;
  if (real_to == DType::pred) return false;
  const bool wider = bit_width(real_to) > bit_width(real_from);
  if (is_float(real_from)) return is_float(real_to) && wider && bit_width(real_to) >= 16;
  if (is_float(real_to)) return bit_width(real_to) >= 32;
  return wider && (is_signed(real_to) || !is_signed(real_from));
}

bool converts_back(DType from, DType to) {
  if (converts(from, to)) return true;
  if (is_complex(from) && !is_complex(to)) return false;
  return is_float(real_dtype(from)) && is_float(real_dtype(to));
}

std::string refused_conversion(const std::vector<DType>& dtypes, std::span<const Type> operands) {
  for (std::size_t i = 0; i < std::min(dtypes.size(), operands.size()); ++i)
    if (!converts(operands[i].dtype, dtypes[i]))
      return fmt::format("it takes {} for operand {}, to which {} is not converted",
                         to_string(dtypes[i]), i, to_string(operands[i]));
  return "";
}

static std::string list_of(const std::vector<DType>& dtypes) {
  Separator comma;
  std::string out;
  for (const DType d : dtypes) out += fmt::format("{}{}", comma(), to_string(d));
  return out;
}

void check_dtypes(const std::string& what, const std::vector<DType>& operand_dtypes,
                  const Types& operands, const std::vector<DType>& result_dtypes,
                  const Types& results) {
  const auto of = [&](const char* word, const std::vector<DType>& dtypes, const Types& types) {
    check(dtypes.empty() || dtypes.size() == types.size(), "{}: {} for {} ({})", what,
          plural(dtypes.size(), fmt::format("{} dtype", word)), plural(types.size(), word),
          list_of(dtypes));
  };
  of("operand", operand_dtypes, operands);
  of("result", result_dtypes, results);
  const std::string refused = refused_conversion(operand_dtypes, operands);
  check(refused.empty(), "{}: {}", what, refused);
  for (std::size_t i = 0; i < result_dtypes.size(); ++i)
    check(converts_back(result_dtypes[i], results[i].dtype),
          "{}: it gives {} for result {}, which is not converted to {}", what,
          to_string(result_dtypes[i]), i, to_string(results[i]));
}

Tensors in_dtypes(const std::vector<DType>& dtypes, TensorSpan operands, const Types& results,
                  const TensorFunction& f) {
  Tensors x(operands.begin(), operands.end());
  for (std::size_t i = 0; i < dtypes.size(); ++i) x[i] = convert_to(x[i], dtypes[i]);
  Tensors y = f(x);
  for (std::size_t i = 0; i < y.size() && i < results.size(); ++i)
    if (y[i].has_value()) y[i] = convert_to(y[i], results[i].dtype);
  return y;
}

Types with_dtypes(Types types, const std::vector<DType>& dtypes) {
  for (std::size_t i = 0; i < types.size() && i < dtypes.size(); ++i) types[i].dtype = dtypes[i];
  return types;
}

}  // namespace postern::internal::blocks
