// Reading modules of text: their custom calls as sites.
//
// The text is not parsed as a whole: XLA does that. What is looked for are the types of @main, and
// each custom call with its attributes and types; everything else stays as it is written. A call
// that a host function serves becomes a site, and its target and attributes are replaced by ours in
// the text, which is put together of the edits at the end. What XLA's own parser would die of,
// brackets or functions nested without end, is refused before XLA sees it. Errors name the line.
#include "reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "attribute_numbers.h"
#include "bytecode.h"
#include "formats.h"
#include "jax_export.h"
#include "mlir_text.h"
#include "portable.h"
#include "rules.h"
#include "spi.h"
#include "text_aliases.h"
#include "text_barriers.h"
#include "text_operations.h"
#include "text_packed.h"

namespace postern::internal::imported {

namespace {

/// Where parts lie: nothing on one device.
constexpr std::string_view placing[] = {"Sharding",
                                        "SPMDFullToShardShape",
                                        "SPMDShardToFullShape",
                                        "LayoutConstraint",
                                        "annotate_device_placement",
                                        "xla.sdy.FuncResultSharding",
                                        "xla.sdy.GlobalToLocalShape",
                                        "xla.sdy.LocalToGlobalShape"};
/// What XLA's passes write for each other.
constexpr std::string_view internal[] = {
    "Pin", "Unpin", "AllocateBuffer", "CreateBuffer", "SliceToDynamic", "PadToStatic", "Ducc_fft"};

bool is_among(std::span<const std::string_view> list, std::string_view target) {
  return std::ranges::find(list, target) != list.end();
}

class TextReader : MlirText {
 public:
  TextReader(std::string_view text, const std::string& name, const std::string& entry)
      : MlirText(text, name), entry_(entry), operations_(read_operations(*this)) {}

  Imported read() {
    Imported out;
    const std::vector<std::string> functions = require_possible_operations();
    const MlirText::Symbol entry = entry_point();
    MainText main = read_main(*this, entry.end);
    if (entry.name != "main")  // XLA wants that name
      for (const TextOperation& op : operations_.all)
        for (const MlirText::Symbol& s : op.symbols)
          if (s.name == entry.name || s.name == "main")
            main.edits.push_back(
                {text_.rfind('@', s.end - 1), s.end, s.name == "main" ? "@main_of_file" : "@main"});
    out.input_names = std::move(main.input_names);
    out.output_names = std::move(main.output_names);
    for (const std::string_view t : main.inputs) out.inputs.push_back(tensor(position(t), t));
    for (const std::string_view t : main.outputs) out.outputs.push_back(tensor(position(t), t));
    out.open = text_.find("@shape_assertion") != npos;
    for (const auto* types : {&main.inputs, &main.outputs})
      for (const std::string_view t : *types) out.open = out.open || t.find('?') != npos;
    for (const TextOperation& op : operations_.all) {
      if (op.name != custom_call_word) continue;
      Call call = custom_call(op.at);
      if (call.server == Server::handler) out.handlers.push_back(call.target);
      if (call.server == Server::nobody) main.edits.push_back(handed_on(call));
      if (call.server != Server::host) continue;
      main.edits.push_back(
          {call.target_at, call.target_end, fmt::format("@{}", host::call_target)});
      main.edits.push_back({call.dict_at, call.dict_end,
                            fmt::format("{{api_version = 4 : i32, backend_config = {{{} = {} : "
                                        "i64}}, operand_layouts = [{}], "
                                        "result_layouts = [{}]{}}}",
                                        host::site_attribute, out.sites.size(),
                                        call.operand_layouts, call.result_layouts, call.kept)});
      out.sites.push_back(
          site_of({call.target, call.attributes, call.operands, call.results, call.side_effect,
                   call.ordered, place_in_file(name_, line_of(call.at))}));
    }
    for (Edit& e : hidden_from_folding(*this, operations_, functions))
      main.edits.push_back(std::move(e));
    out.text = edited(std::move(main.edits));
    for (std::size_t i = 0; i < out.inputs.size(); ++i)
      out.parameters.push_back(static_cast<int>(i));
    return out;
  }

 private:
  struct Call {
    std::size_t at = 0, target_at = 0, target_end = 0, dict_at = 0, dict_end = 0, end = 0;
    std::string target;
    Attributes attributes;
    std::string kept;  // attributes of the operation that stay
    std::string operand_layouts, result_layouts;
    Server server = Server::xla;
    bool side_effect = false, ordered = false;
    std::vector<Type> operands, results;
  };

  /// What XLA must not see. Symbols, but those of custom calls' targets, count as called by the
  /// function that they stand in, which may be too many. Who calls whom is known at the end only.
  /// Returns the functions, callers first.
  std::vector<std::string> require_possible_operations() const {
    CallGraph calls;
    AppliedBodies bodies;
    for (const TextOperation& op : operations_.all) {
      if (op.function == npos || operations_.all[op.function].symbols.empty()) continue;
      const std::string& function = operations_.all[op.function].symbols[0].name;
      auto& callees = calls[function];
      const std::string_view name = bare_name(op.name);
      if (name == "func") continue;
      const bool custom = name == "custom_call", applied = is_applied(op);
      std::string_view target;
      if (custom && !op.symbols.empty()) target = op.symbols[0].name;
      bodies.holds(function, applied, name, target, op.at);
      for (std::size_t i = custom ? 1 : 0; i < op.symbols.size(); ++i) {
        callees[op.symbols[i].name].add(depth_in_function(op));
        bodies.calls(applied, op.symbols[i].name);
      }
      asking(op.at, [&] {
        TextSignature types;
        if (types_matter(name)) types = signature_of(*this, op);
        require_possible(name, types.operands, types.results);
      });
    }
    if (const auto refused = bodies.refused(calls))
      refuse(refused->where, refused->why, ErrorCode::unimplemented);
    std::vector<std::string> functions;
    asking(0, [&] { functions = callers_first(calls); });
    return functions;
  }
  /// In how many regions it stands, the function's own among them.
  std::size_t depth_in_function(const TextOperation& op) const {
    std::size_t depth = 0;
    for (std::size_t region = op.region; region != 0; region = operations_.regions[region].outer) {
      ++depth;
      if (operations_.regions[region].owner == op.function) break;
    }
    return depth;
  }
  /// Whether it stands in a body that is applied to elements.
  bool is_applied(const TextOperation& op) const {
    for (std::size_t region = op.region; region != 0; region = operations_.regions[region].outer)
      if (const std::size_t owner = operations_.regions[region].owner;
          owner != npos && applies_bodies(bare_name(operations_.all[owner].name)))
        return true;
    return false;
  }
  /// Returns the function that is wanted, or else @main, or the only one that is public.
  MlirText::Symbol entry_point() const {
    const TextOperation* found = nullptr;
    std::string names;
    int count = 0;
    for (const TextOperation& op : operations_.all) {
      if (op.name != "func.func" || op.symbols.empty()) continue;
      const std::string& name = op.symbols[0].name;
      if (name == (entry_.empty() ? "main" : entry_)) return op.symbols[0];
      if (part(op.end, op.symbols[0].end).find("private") != npos) continue;
      names += fmt::format("{}@{}", names.empty() ? "" : ", ", name);
      ++count;
      found = &op;
    }
    if (!entry_.empty())
      refuse(0,
             fmt::format("there is no function @{}; public are {}", entry_,
                         names.empty() ? "none" : names),
             ErrorCode::not_found);
    if (!found) refuse(0, "this is neither a saved program nor StableHLO text with a function");
    if (count > 1)
      refuse(found->at,
             fmt::format("there are several public functions, {}, and none is @main: say which is "
                         "the entry",
                         names));
    return found->symbols[0];
  }
  static constexpr std::string_view custom_call_word = "stablehlo.custom_call";

  /// What fails inside is told with the line.
  template <class F>
  void asking(std::size_t where, F&& f) const {
    try {
      f();
    } catch (const Error& e) {
      refuse(where, e.what(), e.code());
    }
  }

  /// stablehlo.reshape %a : (type) -> type
  Edit handed_on(const Call& call) const {
    const std::size_t open = skip_space(call.target_end);
    return {call.at, call.dict_end,
            fmt::format("stablehlo.reshape {} ", trimmed(open + 1, bracket_end(open) - 1))};
  }

  Type tensor(std::size_t where, std::string_view t) const {
    try {
      return open_type(t);
    } catch (const Error& e) {
      refuse(where, e.what(), e.code());
    }
  }
  /// Tokens say that the call is ordered; host functions are given none.
  std::vector<Type> buffers(std::size_t i, std::size_t& end, Call& call,
                            std::string& layouts) const {
    Separator comma;
    std::vector<Type> out;
    for (const Range& range : types(i, end)) {
      const bool token = type(range) == mlir_token;
      std::int64_t rank = 0;
      if (!token) {
        out.push_back(tensor(range.first, type(range)));
        rank = out.back().rank();
      }
      call.ordered = call.ordered || token;
      layouts += comma();
      layouts += mlir_layout(rank);
    }
    return out;
  }

  std::size_t position(std::string_view part) const {
    return static_cast<std::size_t>(part.data() - text_.data());
  }

  /// XLA's errors name lines: each stays the file's.
  std::string edited(std::vector<Edit> edits) const {
    const auto lines = [](std::string_view t) {
      return static_cast<std::size_t>(std::ranges::count(t, '\n'));
    };
    std::ranges::stable_sort(edits, {}, &Edit::from);
    std::string out;
    std::size_t copied = 0;
    for (const Edit& e : edits) {
      out += part(copied, e.from);
      out += e.text;
      out.append(lines(part(e.from, e.to)) - std::min(lines(e.text), lines(part(e.from, e.to))),
                 '\n');
      copied = e.to;
    }
    out += text_.substr(copied);
    return out;
  }

  /// stablehlo.custom_call @target(%a, %b) {...} : (types) -> types
  Call custom_call(std::size_t where) const {
    Call call;
    call.at = where;
    std::size_t i = expect(where + custom_call_word.size(), "@");
    call.target_at = i - 1;
    auto [target, target_end] = symbol(i - 1);
    call.target = std::move(target);
    call.target_end = target_end;
    asking(where, [&] { call.server = server_of(call.target); });
    call.dict_at = call.dict_end = bracket_end(expect(call.target_end, "(") - 1);
    if (const std::size_t dict = skip_space(call.dict_at); at(dict) == '{') {
      call.dict_at = dict;
      call.dict_end = bracket_end(dict);
      for (const auto& [from, to] : items(dict)) operation_attribute(call, from, to);
    }
    // Types are read only where we need them: XLA's own calls may have others.
    call.end = i = expect(call.dict_end, ":");
    if (call.server != Server::host) {
      if (at(skip_space(i)) != '(') return call;
      const auto texts = [&](std::size_t from) {
        std::vector<std::string> out;
        for (const Range& range : types(from, i)) out.emplace_back(type(range));
        return out;
      };
      const std::vector<std::string> operands = texts(i), results = texts(expect(i, "->"));
      asking(where, [&] { require_signature(call.target, call.server, operands, results); });
      return call;
    }
    if (at(skip_space(i)) != '(') refuse(i, "a custom call's operand types are missing");
    call.operands = buffers(i, i, call, call.operand_layouts);
    call.results = buffers(expect(i, "->"), call.end, call, call.result_layouts);
    return call;
  }

  /// XLA dies of names of functions that there are not, where nobody but itself calls them.
  void require_functions(std::string_view names) const {
    const std::size_t begin = position(names);
    for (std::size_t i = names.find('@'); i != npos; i = names.find('@', i + 1)) {
      const MlirText::Symbol named = symbol(begin + i);
      const auto is_it = [&](const TextOperation& op) {
        return op.name == "func.func" && !op.symbols.empty() && op.symbols[0].name == named.name;
      };
      if (std::ranges::none_of(operations_.all, is_it))
        refuse(begin + i, fmt::format("there is no function @{}", named.name));
    }
  }

  void operation_attribute(Call& call, std::size_t from, std::size_t to) const {
    const auto equal = find_outside(from, "=", to);
    const std::string_view name = trimmed(from, equal);
    std::string_view value;
    if (equal != to) value = trimmed(equal + 1, to);
    if (name == "api_version") return;
    if (name == "has_side_effect") {
      call.side_effect = value == "true";
    } else if (name == "called_computations") {
      if (value != "[]" && call.server == Server::host)
        refuse(from, brings_computations(call.target), ErrorCode::unimplemented);
      require_functions(value);
      return;
    } else if (name == "backend_config" || name == "mhlo.backend_config") {
      const std::size_t start = skip_space(equal + 1);
      if (value.starts_with("{"))
        for (const auto& [f, t] : items(start)) user_attribute(call, f, t);
      else if (value.size() > 2)
        call.attributes.set("backend_config", unescaped(value));
      return;
    } else if (name == "operand_layouts" || name == "result_layouts") {
      return;  // host functions see rows, whatever the target wanted, and XLA may choose others
               // where nothing is said
    }
    call.kept += fmt::format(", {}", trimmed(from, to));
  }

  /// name = 3 : i64, 2.5 : f64, "text", true, array<i64: 1, 2>, dense<[1, 2]> : tensor<2xi64>.
  /// Others are given as their text.
  void user_attribute(Call& call, std::size_t from, std::size_t to) const {
    const auto equal = find_outside(from, "=", to);
    const std::string_view key = trimmed(from, equal);
    std::string_view value = "true";  // of a unit attribute
    if (equal != to) value = trimmed(equal + 1, to);
    std::string name(key);
    if (key.starts_with("\"")) name = unescaped(key);
    if (value == "true" || value == "false") return call.attributes.set(name, value == "true");
    if (value.starts_with("\"")) return call.attributes.set(name, unescaped(value));
    if (auto number = numbers_of_text(value)) return call.attributes.set(name, *number);
    call.attributes.set(name, std::string(value));
  }

  const std::string entry_;
  const TextOperations operations_;
};

std::string mlir_element(DType dtype) {
  std::string t = mlir_text({dtype, {}});  // "tensor<f32>"
  return t.substr(7, t.size() - 8);
}

}  // namespace

Type mlir_type(std::string_view t) {
  auto refuse = [&](const std::string& why) { throw Error(ErrorCode::unimplemented, why); };
  if (t.find("!quant.") != t.npos) refuse("values are quantized, which cannot be run");
  if (!t.starts_with("tensor<") || !t.ends_with(">"))
    refuse(fmt::format("values of type {} cannot be passed", t));
  t = t.substr(7, t.size() - 8);
  Dims dims;
  for (auto x = t.find('x'); x != std::string_view::npos; x = t.find('x')) {
    std::int64_t extent = -1;
    const auto [end, error] = std::from_chars(t.data(), t.data() + x, extent);
    if (error != std::errc() || end != t.data() + x) break;  // the x of complex
    dims.push_back(extent);
    t.remove_prefix(x + 1);
  }
  if (t.find('?') != std::string_view::npos || t.find('*') != std::string_view::npos ||
      t.find(',') != std::string_view::npos)
    refuse(fmt::format("tensors of {} have no fixed type", t));
  int d = 0;
  while (d < dtype_count &&
         (static_cast<DType>(d) == DType::token || mlir_element(static_cast<DType>(d)) != t))
    ++d;
  if (d == dtype_count) refuse(fmt::format("there is no element type {}", t));
  Type out = make_type(static_cast<DType>(d), std::move(dims));
  static_cast<void>(out.byte_size());
  return out;
}

Type open_type(std::string_view t) {
  std::string closed(t);
  const std::size_t begin = closed.find('<') + 1, end = std::min(closed.find('>'), closed.size());
  if (closed.find('?') == closed.npos) return mlir_type(t);
  std::vector<bool> open;
  for (std::size_t i = begin; i < end; ++i) {
    const std::size_t x = closed.find('x', i);
    if (x == closed.npos || (closed[i] != '?' && std::isdigit(closed[i]) == 0)) break;
    open.push_back(closed[i] == '?');
    if (open.back()) closed[i] = '1';
    i = x;
  }
  Type out = mlir_type(closed);
  for (std::size_t i = 0; i < open.size(); ++i)
    if (open[i]) out.dims.at(i) = -1;
  return out;
}

Server server_of(const std::string& target) {
  if (is_among(placing, target)) return Server::nobody;
  if (is_among(internal, target) || target.starts_with("__") || target.starts_with("xla."))
    throw Error(ErrorCode::unimplemented,
                fmt::format("custom call '{}' is XLA's own, for no program to make", target));
  if (target == "TopK" || target == "ApproxTopK" || target == "shape_assertion" ||
      target.starts_with("mhlo.") || target.starts_with("stablehlo.") ||
      target.starts_with("chlo."))
    return Server::xla;
  if (has_handler(target)) return Server::handler;
  return Server::host;
}

void require_signature(const std::string& target, Server server,
                       std::span<const std::string> operands,
                       std::span<const std::string> results) {
  const auto refuse = [&](std::string_view wanted) {
    throw Error(ErrorCode::unimplemented,
                fmt::format("custom call '{}' takes {}, got ({}) -> ({})", target, wanted,
                            fmt::join(operands, ", "), fmt::join(results, ", ")));
  };
  if (server == Server::nobody && (operands.size() != 1 || !std::ranges::equal(operands, results)))
    refuse("a value and gives one of the same type on one device, which is what can be loaded");
  if (target == "ApproxTopK" && (results.empty() || operands.size() != 2 * results.size()))
    refuse("a tensor and a value to begin with for each that it gives");
  if (target == "TopK" || target == "mhlo.topk") {
    const auto dims = [](const std::string& type) { return mlir_type(type).dims; };
    bool ok = operands.size() == 1 && results.size() == 2;
    if (ok) {
      const Dims in = dims(operands[0]), out = dims(results[0]);
      ok = !in.empty() && in.size() == out.size() && out.back() <= in.back() &&
           std::equal(in.begin(), in.end() - 1, out.begin()) && results[1].ends_with("i32>") &&
           dims(results[1]) == out && mlir_type(operands[0]).dtype == mlir_type(results[0]).dtype;
    }
    if (!ok) refuse("a tensor and gives its largest elements and their places");
  }
}

std::string brings_computations(std::string_view target) {
  return fmt::format("custom call '{}' brings computations, which host functions cannot be given",
                     target);
}

/// Throws Error for what XLA's parser objects to, with the line of the file: the edits keep lines.
static void require_readable(const std::string& text, const std::string& name, bool open) {
  const std::string objection = objection_to(text);
  constexpr std::string_view place = ": -:";
  const std::size_t at = objection.find(place);
  if (at == objection.npos) return;
  std::size_t line = 0;
  const char* const end = objection.data() + objection.size();
  const auto read = std::from_chars(objection.data() + at + place.size(), end, line);
  std::string_view why(read.ptr, static_cast<std::size_t>(end - read.ptr));
  constexpr std::string_view error = "error: ";
  const std::size_t begins = why.find(error);
  if (read.ec != std::errc() || begins == why.npos) return;
  why = why.substr(begins + error.size());
  if (open && why.find("can't be translated to XLA HLO") != why.npos) return;  // nor is it asked to
  throw Error(ErrorCode::invalid_argument,
              fmt::format("load: {}:{}: {}", name, line, why.substr(0, why.find('\n'))));
}

static Imported read_text(std::string_view text, const std::string& name,
                          const std::string& entry) {
  constexpr std::string_view mark = "\xef\xbb\xbf";  // of Windows' editors
  if (text.starts_with(mark)) text.remove_prefix(mark.size());
  const std::string plain = without_aliases(text, name);
  if (!plain.empty()) text = plain;
  const std::string whole = with_bytes_moved(text, name);
  if (!whole.empty()) text = whole;
  Imported out = TextReader(text, name, entry).read();
  require_readable(out.text, name, out.open);
  return out;
}

Imported read_any(std::string_view text, const std::string& name, const std::string& entry) {
  if (const std::string_view other = other_format(text); !other.empty())
    throw Error(ErrorCode::unimplemented,
                fmt::format("load: {}: this is {}; what can be loaded is StableHLO", name, other));
  const bool portable = text.starts_with(bytecode_magic);
  if (!portable && text.find('\0') == std::string_view::npos) return read_text(text, name, entry);
  try {
    if (portable) return read_portable(text, name, entry.empty() ? "main" : entry);
    if (!entry.empty() && entry != "main")
      throw Error(ErrorCode::not_found,
                  fmt::format("there is no function '{}': it holds one function", entry));
    return read_jax_export(text, name);
  } catch (const Error& e) {
    const char* what = "this is no text, and as an artifact of jax.export";
    if (portable) what = "the portable artifact";
    throw Error(e.code(), fmt::format("load: {}: {}: {}", name, what, e.what()));
  }
}

}  // namespace postern::internal::imported
