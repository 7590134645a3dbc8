// What control flow, calls and custom calls are here.
#include <postern/control.h>
#include <postern/sort.h>

#include <algorithm>

#include "interpreter.h"

namespace postern::internal::imported {

namespace {

Values call_rule(const Step& s) {
  return s.frame.called_by(s.node).run(s.module().function(s.node.symbol), s.x);
}

/// Those that are no tokens, and back.
Values without_tokens(const Values& x) {
  Values out;
  std::ranges::copy_if(x, std::back_inserter(out), [](const Tensor& t) { return t.has_value(); });
  return out;
}
Values with_tokens(const Values& like, const Values& x) {
  Values out;
  for (std::size_t i = 0, next = 0; i < like.size(); ++i)
    out.push_back(like[i].has_value() ? x.at(next++) : Tensor());
  return out;
}

Values while_rule(const Step& s) {
  const auto condition = [&](const Values& carry) {
    return s.region(0, with_tokens(s.x, carry)).at(0);
  };
  const auto body = [&](const Values& carry) {
    return without_tokens(s.region(1, with_tokens(s.x, carry)));
  };
  return with_tokens(s.x, while_loop(condition, body, without_tokens(s.x)));
}

/// The branches' regions take nothing. Tokens that they return say only that they are in order.
Values branches_rule(const Step& s, const Tensor& index) {
  std::vector<std::function<Values()>> branches;
  std::vector<bool> token;
  for (std::size_t i = 0; i < s.node.regions.size(); ++i)
    branches.push_back([&s, &token, i] {
      const Values all = s.region(i, {});
      token.clear();
      for (const Tensor& t : all) token.push_back(!t.has_value());
      return without_tokens(all);
    });
  const Values results = switch_(index, branches);
  Values out;
  for (std::size_t i = 0, next = 0; i < token.size(); ++i)
    out.push_back(token[i] ? Tensor() : results.at(next++));
  return out;
}
/// The last branch is for numbers that are none of a branch, those below 0 too.
Values case_rule(const Step& s) {
  const auto last = static_cast<std::int32_t>(s.node.regions.size()) - 1;
  if (is_known(s[0])) {
    const std::int64_t chosen = integers_in(s[0]).at(0);
    return s.region(static_cast<std::size_t>(chosen < 0 || chosen > last ? last : chosen), {});
  }
  return branches_rule(s, where(less(s[0], 0), last, s[0]));
}
Values if_rule(const Step& s) {
  // Its first region is for true.
  return branches_rule(s, convert<std::int32_t>(logical_not(s[0])));
}

Values token_rule(const Step&) { return {Tensor()}; }

/// Which of the module's sites a call is.
std::size_t site_number(const Step& s) {
  const std::string_view config = s.node.attribute("backend_config");
  const std::size_t at = config.find(host::site_attribute);
  if (at == config.npos) throw Error(ErrorCode::invalid_argument, "a call names no site");
  std::string_view rest = config.substr(at + std::string_view(host::site_attribute).size());
  return static_cast<std::size_t>(integers_of(rest.substr(rest.find('=') + 1)).at(0));
}

/// The operands of a tap that Postern saved which go through its call, as its results: the values
/// behind it are those.
Dims going_through(const Step& s) {
  Dims out;
  const std::string_view aliases = s.node.attribute("output_operand_aliases");
  constexpr std::string_view key = "operand_index = ";
  for (std::size_t i = aliases.find(key); i != aliases.npos; i = aliases.find(key, i + 1)) {
    const std::size_t from = i + key.size();
    out.push_back(integers_of(aliases.substr(from, aliases.find(',', i) - from)).at(0));
  }
  return out;
}

Values site_rule(const Step& s) {
  const SiteSpec& site = *s.frame.opened.sites.at(site_number(s));
  const Values results = at_site_of(site, without_tokens(s.x));
  const Dims through = is_tap(site) ? going_through(s) : Dims();
  const std::vector<std::string_view> types = s.module().result_types(s.node);
  Values out;
  for (std::size_t i = 0, next = 0; i < s.node.results.size(); ++i) {
    if (i < types.size() && types[i] == mlir_token) {
      out.emplace_back();
      continue;
    }
    out.push_back(
        results.at(next < through.size() ? static_cast<std::size_t>(through[next]) : next));
    ++next;
  }
  return out;
}

/// A condition on sizes, with its text.
Values assertion_rule(const Step& s) {
  if (!is_known(s[0]) || integers_in(s[0]).at(0) != 0) return {};
  std::string text(s.node.attribute("error_message"));
  if (text.starts_with("\"")) text = MlirText::unescaped(text);
  for (std::size_t i = 1; i < s.x.size(); ++i) {
    const std::string name = fmt::format("{{{}}}", i - 1);
    for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at))
      text.replace(at, name.size(), std::to_string(integers_in(s[i]).at(0)));
  }
  throw TypeError(text);
}

/// Of values that are the largest along the last axis, and their places.
Values top_k_rule(const Step& s) {
  auto [values, indices] = top_k(s[0], s.result().dims.back());
  return {values, indices};
}

Values custom_call_rule(const Step& s) {
  const std::string& target = s.node.symbol;
  if (target == host::call_target) return site_rule(s);
  if (target == "shape_assertion") return assertion_rule(s);
  if (target == "mhlo.erf") return {erf(s[0])};
  if ((target == "mhlo.topk" || target == "TopK") &&
      MlirText::trimmed(s.node.part("largest")) != "false")
    return top_k_rule(s);
  for (const Rules* by_target : {&product_rules(), &lapack_rules()})
    if (const auto rule = by_target->find(target); rule != by_target->end()) try {
        if (Values results = rule->second(s); !results.empty()) return results;
      } catch (const TypeError&) {  // options that the rule does not know
      }
  std::vector<std::string> handlers;
  if (has_handler(target)) handlers.push_back(target);
  return as_written(s, {.handlers = std::move(handlers)});
}

/// A tuple has no value of its own: who takes an element asks what it was made of.
Values tuple_rule(const Step&) { return {Tensor()}; }
std::size_t element_number(const Node& node) {
  Dims index = integers_of(fmt::format("[{}]", node.range));
  if (node.range.empty()) index = integers_of(node.attribute("index"));
  return static_cast<std::size_t>(index.at(0));
}
/// Returns what the tuple of that name was made of.
const std::vector<std::string>& elements_of(const Frame& frame, const std::string& tuple) {
  const Node* const made = frame.maker(tuple);
  if (made && made->name == "tuple") return made->operands;
  if (!made || made->name != "get_tuple_element")
    throw Error(ErrorCode::unimplemented,
                "get_tuple_element: its tuple is not made by an operation 'tuple'");
  const auto& outer = elements_of(frame, made->operands.at(0));
  return elements_of(frame, outer.at(element_number(*made)));
}
Values tuple_element_rule(const Step& s) {
  const auto& elements = elements_of(s.frame, s.node.operands.at(0));
  return {s.frame.value(elements.at(element_number(s.node)))};
}

}  // namespace

const Rules& control_rules() {
  static const Rules* const rules = new Rules{
      {"call", call_rule},
      {"composite", call_rule},
      {"while", while_rule},
      {"case", case_rule},
      {"if", if_rule},
      {"create_token", token_rule},
      {"after_all", token_rule},
      {"custom_call", custom_call_rule},
      {"top_k", top_k_rule},
      {"tuple", tuple_rule},
      {"get_tuple_element", tuple_element_rule},
  };
  return *rules;
}

}  // namespace postern::internal::imported
