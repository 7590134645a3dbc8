// Reading modules: no more of MLIR's grammar than where strings and brackets end.
#include "file/foreign.h"

#include <postern/library.h>

#include <algorithm>
#include <charconv>

#include "core/check.h"
#include "file/site_json.h"
#include "host/handler.h"
#include "lower/lowering.h"

namespace postern::file {

namespace {

constexpr auto npos = std::string_view::npos;

/// Targets that XLA takes for itself.
bool is_xlas(std::string_view target) {
  constexpr std::string_view known[] = {
      "Sharding", "SPMDFullToShardShape",      "SPMDShardToFullShape", "TopK",         "LayoutConstraint", "Pin",
      "Unpin",    "annotate_device_placement", "AllocateBuffer",       "CreateBuffer", "SliceToDynamic",   "PadToStatic",
      "Ducc_fft"};
  return std::ranges::find(known, target) != std::end(known) || target.starts_with("mhlo.") || target.starts_with("stablehlo.") ||
         target.starts_with("chlo.") || target.starts_with("xla.") || target.starts_with("__");
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Foreign read() {
    Foreign out;
    signature(out);
    std::size_t copied = 0;
    for (std::size_t at = 0; (at = next_custom_call(at)) != npos;) {
      const Call call = custom_call(at);
      at = call.end;
      if (!call.ours) continue;
      out.text += text_.substr(copied, call.target_at - copied);
      out.text += fmt::format("@{}", host::call_target);
      out.text += text_.substr(call.target_end, call.dict_at - call.target_end);
      out.text +=
          fmt::format("{{api_version = 4 : i32, backend_config = {{{} = {} : i64}}{}}}", host::site_attribute, out.sites.size(), call.kept);
      copied = call.dict_end;
      out.sites.push_back(site(call));
    }
    out.text += text_.substr(copied);
    return out;
  }

 private:
  struct Call {
    std::size_t at = 0, target_at = 0, target_end = 0, dict_at = 0, dict_end = 0, end = 0;
    std::string target;
    Attributes attributes;
    std::string kept;  // attributes of the operation that stay
    bool side_effect = false, ours = false;
    std::vector<Type> operands, results;
  };

  [[noreturn]] void refuse(std::size_t at, const std::string& why, ErrorCode code = ErrorCode::invalid_argument) const {
    throw Error(code, fmt::format("load: {}:{}: {}", name_, line_of(at), why));
  }
  std::uint32_t line_of(std::size_t at) const { return static_cast<std::uint32_t>(1 + std::ranges::count(text_.substr(0, at), '\n')); }
  char at(std::size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  std::size_t skip_space(std::size_t i) const {
    while (i < text_.size() && std::string_view(" \t\r\n").find(text_[i]) != npos) ++i;
    return i;
  }
  std::size_t expect(std::size_t i, std::string_view word) const {
    i = skip_space(i);
    if (!text_.substr(i).starts_with(word)) refuse(i, fmt::format("'{}' was expected, '{}' is there", word, text_.substr(i, 20)));
    return i + word.size();
  }
  /// Behind the string that begins at i.
  std::size_t string_end(std::size_t i) const {
    for (std::size_t k = i + 1; k < text_.size(); ++k) {
      if (text_[k] == '"') return k + 1;
      if (text_[k] == '\\') ++k;
    }
    refuse(i, "a string has no end");
  }
  /// The first of `stops` outside of strings and brackets, from i on; `end` at the latest.
  std::size_t find_outside(std::size_t i, std::string_view stops, std::size_t end) const {
    int depth = 0;
    while (i < end) {
      const char c = text_[i];
      if (depth == 0 && stops.find(c) != npos) return i;
      if (c == '"') {
        i = string_end(i);
        continue;
      }
      if (c == '-' && at(i + 1) == '>')
        ++i;
      else if (c == '(' || c == '[' || c == '{' || c == '<')
        ++depth;
      else if (c == ')' || c == ']' || c == '}' || c == '>')
        --depth;
      if (depth < 0) return i;
      ++i;
    }
    return end;
  }
  /// Behind the bracket that closes the one at i.
  std::size_t bracket_end(std::size_t i) const {
    const std::size_t close = find_outside(i + 1, ")]}>", text_.size());
    if (close >= text_.size()) refuse(i, fmt::format("a '{}' is never closed", text_[i]));
    return close + 1;
  }
  std::string_view trimmed(std::size_t from, std::size_t to) const { return trimmed(text_.substr(from, to - from)); }
  static std::string_view trimmed(std::string_view part) {
    while (!part.empty() && std::string_view(" \t\r\n").find(part.front()) != npos) part.remove_prefix(1);
    while (!part.empty() && std::string_view(" \t\r\n").find(part.back()) != npos) part.remove_suffix(1);
    return part;
  }
  /// What stands between commas in the brackets at i.
  std::vector<std::pair<std::size_t, std::size_t>> items(std::size_t i) const {
    const std::size_t end = bracket_end(i) - 1;
    std::vector<std::pair<std::size_t, std::size_t>> out;
    for (std::size_t from = i + 1; !trimmed(from, end).empty();) {
      const std::size_t to = find_outside(from, ",", end);
      out.emplace_back(from, to);
      if (to >= end) break;
      from = to + 1;
    }
    return out;
  }

  Type type(std::size_t where, std::string_view t) const {
    if (!t.starts_with("tensor<") || !t.ends_with(">"))
      refuse(where, fmt::format("values of type {} cannot be passed", t), ErrorCode::unimplemented);
    t = t.substr(7, t.size() - 8);
    Dims dims;
    for (auto x = t.find('x'); x != npos; x = t.find('x')) {
      std::int64_t extent = -1;
      const auto [end, error] = std::from_chars(t.data(), t.data() + x, extent);
      if (error != std::errc() || end != t.data() + x) break;  // the x of complex
      dims.push_back(extent);
      t.remove_prefix(x + 1);
    }
    if (t.find('?') != npos || t.find('*') != npos || t.find(',') != npos)
      refuse(where, fmt::format("tensors of {} have no fixed type", t), ErrorCode::unimplemented);
    for (int d = 0; d < dtype_count; ++d)
      if (const auto dtype = static_cast<DType>(d); dtype != DType::token && mlir_element(dtype) == t) {
        Type out = make_type(dtype, std::move(dims));
        static_cast<void>(out.byte_size());
        return out;
      }
    refuse(where, fmt::format("there is no element type {}", t), ErrorCode::unimplemented);
  }
  static std::string mlir_element(DType dtype) {
    std::string t = Lowering::type({dtype, {}});  // "tensor<f32>"
    return t.substr(7, t.size() - 8);
  }
  /// "(a, b)", or one type: from i on; `end` is behind it.
  std::vector<Type> types(std::size_t i, std::size_t& end) const {
    i = skip_space(i);
    std::vector<Type> out;
    if (at(i) == '(') {
      for (const auto& [from, to] : items(i)) {
        const std::string_view t = trimmed(from, to);
        out.push_back(type(from, t.substr(0, type_length(t))));  // attributes may follow
      }
      end = bracket_end(i);
    } else {
      const std::string_view rest = text_.substr(i);
      const std::size_t length = type_length(rest);
      out.push_back(type(i, rest.substr(0, length)));
      end = i + length;
    }
    return out;
  }
  /// Of "tensor<...>" at the front.
  static std::size_t type_length(std::string_view t) {
    int depth = 0;
    for (std::size_t i = 0; i < t.size(); ++i) {
      if (t[i] == '<') ++depth;
      if (t[i] == '>' && --depth == 0) return i + 1;
      if (depth == 0 && std::string_view(" \t\r\n,){").find(t[i]) != npos) return i;
    }
    return t.size();
  }

  void signature(Foreign& out) const {
    std::size_t i = text_.find("@main(");
    if (i == npos) refuse(0, "this is neither a saved program nor StableHLO text with a function @main");
    i += 5;
    for (const auto& [from, to] : items(i)) {
      const auto colon = find_outside(from, ":", to);
      if (colon == to) refuse(from, "an argument of @main has no type");
      const std::string_view t = trimmed(colon + 1, to);
      out.inputs.push_back(type(from, t.substr(0, type_length(t))));
    }
    i = skip_space(bracket_end(i));
    if (!text_.substr(i).starts_with("->")) return;
    out.outputs = types(i + 2, i);
  }

  std::size_t next_custom_call(std::size_t from) const {
    for (std::size_t i = from; i < text_.size();) {
      if (text_[i] == '"') {
        const std::size_t end = string_end(i);
        if (text_.substr(i, end - i) == "\"stablehlo.custom_call\"")
          refuse(i, "a custom call in MLIR's generic form cannot be read; print the module in StableHLO's own form",
                 ErrorCode::unimplemented);
        i = end;
      } else if (text_[i] == '/' && at(i + 1) == '/') {
        i = std::min(text_.find('\n', i), text_.size());
      } else if (text_.substr(i).starts_with("stablehlo.custom_call ")) {
        return i;
      } else {
        ++i;
      }
    }
    return npos;
  }

  /// stablehlo.custom_call @target(%a, %b) {...} : (types) -> types
  Call custom_call(std::size_t where) const {
    Call call;
    call.at = where;
    std::size_t i = expect(where + 21, "@");
    call.target_at = i - 1;
    if (at(i) == '"') {
      call.target_end = string_end(i);
      call.target = text_.substr(i + 1, call.target_end - i - 2);
    } else {
      call.target_end = find_outside(i, "(", text_.size());
      call.target = text_.substr(i, call.target_end - i);
    }
    call.ours = is_ours(call.target);
    call.dict_at = call.dict_end = bracket_end(expect(call.target_end, "(") - 1);
    if (const std::size_t dict = skip_space(call.dict_at); at(dict) == '{') {
      call.dict_at = dict;
      call.dict_end = bracket_end(dict);
      for (const auto& [from, to] : items(dict)) operation_attribute(call, from, to);
    }
    // Types are read only where we need them: XLA's own calls may have others.
    call.end = i = expect(call.dict_end, ":");
    if (!call.ours) return call;
    if (at(skip_space(i)) != '(') refuse(i, "a custom call's operand types are missing");
    call.operands = types(i, i);
    call.results = types(expect(i, "->"), call.end);
    return call;
  }

  static bool is_ours(std::string_view target) {
    if (is_xlas(target)) return false;
    const auto handlers = ffi_handlers();
    return std::ranges::find(handlers, target) == handlers.end();
  }

  void operation_attribute(Call& call, std::size_t from, std::size_t to) const {
    const auto equal = find_outside(from, "=", to);
    const std::string_view name = trimmed(from, equal), value = equal == to ? std::string_view() : trimmed(equal + 1, to);
    if (name == "api_version") return;
    if (name == "has_side_effect") {
      call.side_effect = value == "true";
    } else if (name == "called_computations") {
      if (value != "[]")
        refuse(from, fmt::format("custom call '{}' brings computations, which host functions cannot be given", call.target),
               ErrorCode::unimplemented);
      return;
    } else if (name == "backend_config" || name == "mhlo.backend_config") {
      const std::size_t start = skip_space(equal + 1);
      if (value.starts_with("{"))
        for (const auto& [f, t] : items(start)) user_attribute(call, f, t);
      else if (value.size() > 2)
        call.attributes.set("backend_config", unescaped(value));
      return;
    } else if (name == "operand_layouts" || name == "result_layouts") {
      return;  // host functions see rows, whatever the target wanted
    }
    call.kept += fmt::format(", {}", trimmed(from, to));
  }

  /// name = 3 : i64, 2.5 : f64, "text", true, array<i64: 1, 2>, dense<[1, 2]> : tensor<2xi64>. Others are given as their text.
  void user_attribute(Call& call, std::size_t from, std::size_t to) const {
    const auto equal = find_outside(from, "=", to);
    const std::string_view key = trimmed(from, equal), value = equal == to ? "true" : trimmed(equal + 1, to);  // a unit attribute
    const std::string name = key.starts_with("\"") ? unescaped(key) : std::string(key);
    if (value == "true" || value == "false") return call.attributes.set(name, value == "true");
    if (value.starts_with("\"")) return call.attributes.set(name, unescaped(value));
    if (value.starts_with("array<") && value.find(':') != npos) {
      const auto colon = value.find(':');
      if (const auto list = numbers(value.substr(colon + 1, value.size() - colon - 2))) return call.attributes.set(name, *list);
    } else if (value.starts_with("dense<")) {
      std::string_view list = value.substr(6, value.find('>') - 6);
      if (list.starts_with("[")) list = list.substr(1, list.size() - 2);
      if (const auto found = numbers(list)) return call.attributes.set(name, *found);
    } else if (const auto number = numbers(value.substr(0, value.find(':')))) {
      if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&*number)) return call.attributes.set(name, integers->front());
      return call.attributes.set(name, std::get<std::vector<double>>(*number).front());
    }
    call.attributes.set(name, std::string(value));
  }
  /// "1, 2" as integers, or "1.5, 2.0" as reals.
  static std::optional<Attribute> numbers(std::string_view list) {
    std::vector<std::int64_t> integers;
    std::vector<double> reals;
    for (std::size_t from = 0, to = 0; from <= list.size(); from = to + 1) {
      to = std::min(list.find(',', from), list.size());
      const std::string_view part = trimmed(list.substr(from, to - from));
      const char *const begin = part.data(), *const end = begin + part.size();
      std::int64_t n = 0;
      double d = 0;
      if (const auto [at, error] = std::from_chars(begin, end, n); !part.empty() && error == std::errc() && at == end)
        integers.push_back(n);
      if (const auto [at, error] = std::from_chars(begin, end, d); part.empty() || error != std::errc() || at != end) return {};
      reals.push_back(d);
    }
    if (integers.size() == reals.size()) return integers;
    return reals;
  }
  /// Of a string in quotes: \n, \t, \", \\ and two hexadecimal digits.
  static std::string unescaped(std::string_view quoted) {
    const std::string_view in = quoted.substr(1, quoted.size() - 2);
    std::string out;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (in[i] != '\\' || i + 1 == in.size()) {
        out += in[i];
        continue;
      }
      int code = 0;
      const char next = in[++i];
      if (const auto [at, error] = std::from_chars(&in[i], in.data() + std::min(i + 2, in.size()), code, 16);
          error == std::errc() && at == &in[i] + 2)
        out += static_cast<char>(code), ++i;
      else
        out += next == 'n' ? '\n' : next == 't' ? '\t' : next;
    }
    return out;
  }

  SitePtr site(const Call& call) const {
    SiteSpec s;
    s.name = call.target;
    s.place = place_in_file(name_, line_of(call.at));
    s.named = {call.target, call.attributes};
    s.operands = call.operands;
    s.results = call.results;
    s.operand_paths.resize(s.operands.size());
    s.result_paths.resize(s.results.size());
    s.result_structure = "(";
    for (std::size_t i = 0; i < s.results.size(); ++i) s.result_structure += i ? ",*" : "*";
    s.result_structure += ")";
    s.effect = call.side_effect ? Effect::unordered : Effect::pure;
    s.from_file = true;
    return std::make_shared<const SiteSpec>(std::move(s));
  }

  std::string_view text_;
  const std::string& name_;
};

}  // namespace

Foreign read_stablehlo(std::string_view text, const std::string& name) {
  if (text.starts_with("ML\xefR") || text.find('\0') != npos)
    throw Error(ErrorCode::unimplemented,
                fmt::format("load: {}: this is a binary file; programs are read as StableHLO text, which MLIR's tools and "
                            "str(exported.mlir_module()) of jax.export give",
                            name));
  return Reader(text, name).read();
}

}  // namespace postern::file
