// Writing VHLO as StableHLO. VHLO says of everything which version it is of, and wraps what MLIR
// has anyway: `#vhlo.integer_v1<3 : i64>`. The versions and wrappers go. What is left to change are
// properties that StableHLO has in structs or as another kind of array.
#include "from_vhlo.h"

#include <algorithm>
#include <vector>

#include "mlir_text.h"
#include "module.h"
#include "reader.h"

namespace postern::internal::imported {

namespace {

constexpr auto npos = std::string_view::npos;

/// Without "_v1" at the end.
std::string_view unversioned(std::string_view word) {
  const std::size_t v = word.rfind("_v");
  if (v == npos || v + 2 == word.size() || word.find_first_not_of("0123456789", v + 2) != npos)
    return word;
  return word.substr(0, v);
}

constexpr std::string_view wrappers[] = {"#vhlo.integer_v1", "#vhlo.float_v1",  "#vhlo.string_v1",
                                         "#vhlo.array_v1",   "#vhlo.tensor_v1", "#vhlo.dict_v1",
                                         "#vhlo.type_v1",    "#vhlo.bool_v1"};

using Properties = std::vector<std::pair<std::string, std::string>>;

/// The structs into which StableHLO puts properties, for these operations.
struct Struct {
  std::string_view operation, key, type;
  std::vector<std::string_view> parts;
};
const std::vector<Struct>& structs() {
  static const auto* const all = new std::vector<Struct>{
      {"dot_general",
       "dot_dimension_numbers",
       "dot",
       {"lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions",
        "rhs_contracting_dimensions"}},
      {"gather",
       "dimension_numbers",
       "gather",
       {"offset_dims", "collapsed_slice_dims", "operand_batching_dims",
        "start_indices_batching_dims", "start_index_map", "index_vector_dim"}},
      {"dynamic_gather",
       "dimension_numbers",
       "gather",
       {"offset_dims", "collapsed_slice_dims", "operand_batching_dims",
        "start_indices_batching_dims", "start_index_map", "index_vector_dim"}},
      {"scatter",
       "scatter_dimension_numbers",
       "scatter",
       {"update_window_dims", "inserted_window_dims", "input_batching_dims",
        "scatter_indices_batching_dims", "scatter_dims_to_operand_dims", "index_vector_dim"}},
      {"convolution",
       "dimension_numbers",
       "conv",
       {"input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions",
        "kernel_input_feature_dimension", "kernel_output_feature_dimension",
        "kernel_spatial_dimensions", "output_batch_dimension", "output_feature_dimension",
        "output_spatial_dimensions"}},
  };
  return *all;
}

void put_in_struct(std::string_view operation, Properties& properties) {
  const auto& all = structs();
  const auto found = std::ranges::find(all, operation, &Struct::operation);
  if (found == all.end()) return;
  std::string parts;
  Separator comma;
  for (const std::string_view part : found->parts) {
    const auto at = std::ranges::find(properties, part, &Properties::value_type::first);
    if (at == properties.end()) continue;
    const Dims numbers = integers_of(at->second);
    const bool one =
        part.ends_with("_dim") || (found->type == "conv" && part.ends_with("_dimension"));
    if (one || !numbers.empty())
      parts += one ? fmt::format("{}{} = {}", comma(), part, numbers.at(0))
                   : fmt::format("{}{} = [{}]", comma(), part, fmt::join(numbers, ", "));
    properties.erase(at);
  }
  properties.emplace_back(found->key, fmt::format("#stablehlo.{}<{}{}>", found->type,
                                                  found->type == "conv" ? "raw " : "", parts));
}

/// Writes "dense<true> : tensor<2xi1>", or one for each axis, as an array.
std::string with_axes(const std::string& value) {
  const std::size_t end = value.rfind(" : ");
  std::vector<std::string> flags;
  for (std::size_t i = value.find_first_of("tf", value.find('<')); i < end;
       i = value.find_first_of("tf", i + 4))
    flags.push_back(value[i] == 't' ? "true" : "false");
  const auto axes = static_cast<std::size_t>(
      mlir_type(MlirText::trimmed(std::string_view(value).substr(end + 3))).size());
  if (flags.size() == 1) flags.resize(axes, flags[0]);
  return fmt::format("array<i1{}{}>", flags.empty() ? "" : ": ", fmt::join(flags, ", "));
}

/// Properties of some operations that StableHLO has otherwise.
void rename(std::string_view operation, Properties& properties) {
  constexpr std::string_view versions[] = {
      "API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
      "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"};
  for (auto& [key, value] : properties) {
    if (key == "api_version") {
      const std::string_view word =
          MlirText::trimmed(std::string_view(value).substr(value.find(' ') + 1));
      for (std::size_t i = 0; i < std::size(versions); ++i)
        if (word == fmt::format("{}>", versions[i])) value = fmt::format("{} : i32", i);
    } else if ((key == "callee" || key == "decomposition") && value.starts_with("\"")) {
      value = fmt::format("@{}", value);
    } else if (key == "called_computations") {
      for (std::size_t i = value.find('"'); i != npos;
           i = value.find('"', value.find('"', i + 2) + 1))
        value.insert(i, "@");
    } else if (key != "value" && key != "padding" && value.starts_with("dense<") &&
               value.ends_with("xi64>") &&
               std::ranges::count(value.substr(value.rfind(" : ")), 'x') == 1) {
      const Dims numbers = integers_of(value);
      value = fmt::format("array<i64{}{}>", numbers.empty() ? "" : ": ", fmt::join(numbers, ", "));
    } else if (key == "sym_visibility" && value == "\"\"") {
      value = "\"private\"";
    } else if (key == "output_operand_aliases") {
      for (const auto& [from, to] : {std::pair{"outputTupleIndices", "output_tuple_indices"},
                                     {"operandIndex", "operand_index"},
                                     {"operandTupleIndices", "operand_tuple_indices"}})
        for (std::size_t i = value.find(from); i != npos; i = value.find(from, i + 1))
          value.replace(i, std::string_view(from).size(), to);
    } else if (key == "window_reversal" && value.starts_with("dense<")) {
      value = with_axes(value);
    }
  }
  put_in_struct(operation, properties);
  std::erase_if(properties, [](const auto& item) {  // what is not there, or says nothing
    return item.second == "none" ||
           (item.first == "result_accuracy" && item.second.find(" DEFAULT>") != npos) ||
           item.first == "arg_attrs" || item.first == "res_attrs" ||
           (item.second == "[]" &&
            (item.first.ends_with("_layouts") || item.first == "output_operand_aliases"));
  });
}

class Converter : MlirText {
 public:
  Converter(std::string_view text, const std::string& name) : MlirText(text, name) {}

  std::string convert() {
    while (i_ < text_.size()) next();
    return std::move(out_);
  }

 private:
  void next() {
    const char c = text_[i_];
    const std::string_view rest = text_.substr(i_);
    if (c == '"') return string();
    if (rest.starts_with("<{")) return properties();
    if (rest.starts_with("#vhlo") || rest.starts_with("!vhlo")) return wrapped();
    if (rest.starts_with("->")) {
      out_ += !closes_.empty() && closes_.back() == function ? "-> (" : "->";
      i_ += 2;
      return;
    }
    if (c == '<' || c == '{' || c == '(' || c == '[') closes_ += c;
    if (c == '>' || c == '}' || c == ')' || c == ']') {
      const char opened = closes_.empty() ? c : closes_.back();
      if (!closes_.empty()) closes_.pop_back();
      if (opened == function) out_ += ')';
      if (opened == function || opened == nothing) {
        ++i_;
        return;
      }
    }
    out_ += c;
    ++i_;
  }

  void string() {
    const std::size_t end = string_end(i_);
    std::string_view word = part(i_ + 1, end - 1);
    if (word.starts_with("vhlo.") && at(skip_space(end)) == '(') {
      word = unversioned(word.substr(5));
      operation_ = word;
      const bool of_func = word == "func" || word == "call";
      out_ += fmt::format("\"{}.{}\"", of_func ? "func" : "stablehlo", word);
    } else {
      out_ += part(i_, end);
    }
    i_ = end;
  }

  /// `<{key = value, ...}>` of the operation before.
  void properties() {
    const std::size_t open = i_ + 1, close = bracket_end(open);
    Properties all;
    for (const auto& [from, to] : items(open)) {
      const std::size_t equal = find_outside(from, "=", to);
      std::string value = Converter(trimmed(equal + 1, to), name_).convert();
      all.emplace_back(trimmed(from, equal), std::move(value));
    }
    rename(operation_, all);
    Separator comma;
    out_ += "<{";
    for (const auto& [key, value] : all) out_ += fmt::format("{}{} = {}", comma(), key, value);
    out_ += "}>";
    i_ = close + 1;
  }

  void wrapped() {
    const std::size_t end = word_end(i_ + 1);
    const std::string_view word = part(i_, end);
    i_ = end;
    if (std::ranges::find(wrappers, word) != std::end(wrappers)) {
      closes_ += nothing;
      ++i_;  // its <
    } else if (word == "!vhlo.func_v1") {
      closes_ += function;
      ++i_;
    } else if (word == "#vhlo.output_operand_alias_v1") {
      out_ += "#stablehlo.output_operand_alias";
    } else if (word == "#vhlo") {
      const std::size_t key = word_end(end + 1);
      out_ += fmt::format("#stablehlo<{}", unversioned(part(end + 1, key)));
      closes_ += '>';
      i_ = key;
    } else if (word == "#vhlo.none_v1") {
      out_ += "none";
    } else if (word == "!vhlo.token_v1") {
      out_ += mlir_token;
    } else {
      const std::string_view name = unversioned(word.substr(word.find('.') + 1));
      out_ += name == "bool" ? "i1" : name;
    }
  }

  static constexpr char nothing = '\0', function = 'F';
  std::size_t i_ = 0;
  std::string out_, closes_;  // of each open bracket what it is, or what becomes of it
  std::string_view operation_;
};

}  // namespace

std::string from_vhlo(std::string_view text) {
  const std::string name;
  return Converter(text, name).convert();
}

}  // namespace postern::internal::imported
