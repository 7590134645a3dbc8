// Writing modules of VHLO as text: operations in MLIR's generic form, @main without tokens, custom
// calls as calls of ours.
#include "portable.h"

#include <algorithm>
#include <map>
#include <set>

#include "attribute_numbers.h"
#include "rules.h"
#include "spi.h"
#include "vhlo_module.h"

namespace postern::internal::imported {

namespace {

using Kind = VhloAttribute::Kind;

/// All of a product's, or none.
constexpr std::string_view algorithm[] = {
    "accumulation_type",  "allow_imprecise_accumulation", "lhs_component_count",
    "lhs_precision_type", "num_primitive_operations",     "rhs_component_count",
    "rhs_precision_type"};

class Writer {
 public:
  Writer(Bytecode code, std::size_t size, const std::string& name, const std::string& entry,
         const Exported* exported)
      : name_(name),
        entry_(entry),
        exported_(exported),
        code_(std::move(code)),
        vhlo_(code_, size),
        most_(1000 * size + (1 << 20)) {}

  Imported write() {
    const std::vector<Operation>& top = code_.top.operations;
    if (top.size() != 1 || name_of(top[0]) != "builtin.module" || top[0].regions.size() != 1 ||
        top[0].regions[0].size() != 1)
      refuse_damaged("this is no module");
    check_attributes(top[0]);
    prepared_ = prepare(code_, vhlo_, exported_, entry_);
    out_.text = "module {\n";
    for (const Operation& op : top[0].regions[0][0].operations) operation(op);
    out_.text += "}\n";
    out_.open = out_.text.find("\"shape_assertion\"") != out_.text.npos;
    for (const auto* types : {&out_.inputs, &out_.outputs})
      for (const Type& t : *types) out_.open = out_.open || std::ranges::count(t.dims, -1) > 0;
    if (!has_main_)
      throw Error(entry_ == "main" ? ErrorCode::invalid_argument : ErrorCode::not_found,
                  fmt::format("the module has no function @{}", entry_));
    return std::move(out_);
  }

 private:
  using Named = Vhlo::Named;

  const std::string& name_of(const Operation& op) const { return code_.operations[op.name]; }
  const VhloType& type_of(std::size_t value) { return vhlo_.type(code_.value_types[value]); }

  void check_attributes(const Operation& module) {
    if (!module.attributes) return;
    for (const auto& [key, value] : vhlo_.dictionary(*module.attributes))
      if (key == "mhlo.num_partitions" || key == "mhlo.num_replicas")
        require_one_device("module", key, vhlo_.host_attribute(value));
  }

  void limit(const std::string& text) const {
    if (text.size() > most_)
      throw Error(ErrorCode::resource_exhausted,
                  "it makes more text than a file of its size can have");
  }

  void operation(const Operation& op) {
    limit(out_.text);
    const std::string& name = name_of(op);
    const Named own = vhlo_.properties(op);
    if (name == "vhlo.func_v1") {
      const std::string function(vhlo_.attribute(Vhlo::find(own, "sym_name")).bytes);
      const auto found = prepared_.weights.added.find(function);
      const std::size_t added = found == prepared_.weights.added.end() ? 0 : found->second;
      check_body(op, vhlo_.type(vhlo_.attribute(Vhlo::find(own, "function_type")).type), added);
      if (function == entry_) return main(op, own, added);
      if (!prepared_.needed.contains(function)) return;
      if (added) return taking_weights(op, own);
    } else if (name.starts_with("vhlo.custom_call_v")) {
      return custom_call(op, own);
    } else if (name == "vhlo.dot_general_v2") {
      std::size_t none = 0;
      for (const std::string_view part : algorithm)
        none += vhlo_.is_none(vhlo_.attribute(Vhlo::find(own, part)));
      if (none != 0 && none != std::size(algorithm))
        refuse_damaged("a product has half an algorithm");
    } else if (name == "vhlo.constant_v1") {
      const VhloType& value = vhlo_.type(vhlo_.attribute(Vhlo::find(own, "value")).type);
      if (op.results.size() != 1 || type_of(op.results[0]).builtin != value.builtin)
        refuse_damaged(
            fmt::format("a constant of type {} is not what its operation makes", value.builtin));
    }
    as_it_is(op, own);
  }
  void as_it_is(const Operation& op, const Named& own) {
    std::string name = name_of(op);
    // The same as the first version, and known to more plug-ins.
    if (name == "vhlo.composite_v2" && op.regions.empty()) name = "vhlo.composite_v1";
    const std::string_view bare = bare_name(name);
    if (op.results.size() == 1 && (bare == "convert" || moves_axes(bare)))
      moving(op, name, own);
    else
      write(op, name, own, discardable(op));
  }

  /// As with_bytes_moved in a text.
  void moving(const Operation& op, std::string_view name, const Named& own) {
    const std::size_t result = op.results[0];
    const std::string given = bytes_type(result);
    std::string seen;
    if (bare_name(name) == "convert") {
      if (op.operands.empty()) refuse_damaged("a conversion has no operand");
      const std::size_t v = op.operands[0];
      if (!given.empty() && bytes_type(v).empty())
        instead_[v] = {
            step("optimization_barrier", fmt::format("%{}", v), type_of(v).text, type_of(v).text),
            type_of(v).text};
    } else {
      for (const std::size_t v : op.operands)
        if (const std::string type = bytes_type(v); !type.empty() && !instead_.contains(v))
          instead_[v] = {step("convert", fmt::format("%{}", v), type_of(v).text, type), type};
      if (!instead_.empty() && !given.empty())
        instead_[result] = {seen = fmt::format("%bytes_{}", steps_++), given};
    }
    write(op, name, own, discardable(op));
    instead_.clear();
    if (seen.empty()) return;
    seen = step("optimization_barrier", seen, given, given);
    out_.text += fmt::format("%{} = \"vhlo.convert_v1\"({}) : ({}) -> ({})\n", result, seen, given,
                             type_of(result).text);
  }
  /// Writes one of our own, returns its result.
  std::string step(std::string_view name, std::string_view value, std::string_view from,
                   std::string_view to) {
    std::string out = fmt::format("%bytes_{}", steps_++);
    out_.text +=
        fmt::format("{} = \"vhlo.{}_v1\"({}) : ({}) -> ({})\n", out, name, value, from, to);
    return out;
  }
  /// Of a value in_bytes(); empty where that is.
  std::string bytes_type(std::size_t value) {
    const std::string& text = type_of(value).text;
    const std::string bytes = imported::in_bytes(type_of(value).builtin);
    const std::size_t element = text.rfind("!vhlo.");
    if (bytes.empty() || element == text.npos) return {};
    return fmt::format("{}!vhlo.{}_v1>", text.substr(0, element),
                       bytes.substr(bytes.rfind('x') + 1, bytes.size() - bytes.rfind('x') - 2));
  }

  std::vector<std::pair<std::string, std::string>> discardable(const Operation& op) {
    std::vector<std::pair<std::string, std::string>> out;
    if (op.attributes)
      for (const auto& [key, value] : vhlo_.dictionary(*op.attributes))
        out.emplace_back(key, vhlo_.text(value));
    return out;
  }

  void write(const Operation& op, std::string_view name, const Named& own,
             const std::vector<std::pair<std::string, std::string>>& others) {
    std::vector<std::pair<std::string_view, std::string_view>> properties;
    for (const auto& [key, value] : own) properties.emplace_back(key, vhlo_.text(value));
    write_with(op, name, properties, others);
  }
  void write_with(const Operation& op, std::string_view name,
                  const std::vector<std::pair<std::string_view, std::string_view>>& properties,
                  const std::vector<std::pair<std::string, std::string>>& others) {
    write_head(op, name, properties);
    Separator comma(", ", " (");
    for (const auto& part : op.regions) {
      out_.text += comma();
      region(part);
    }
    if (!op.regions.empty()) out_.text += ")";
    write_tail(op, others);
  }
  void write_head(const Operation& op, std::string_view name,
                  const std::vector<std::pair<std::string_view, std::string_view>>& properties) {
    out_.text += values(op.results);
    if (!op.results.empty()) out_.text += " = ";
    out_.text += fmt::format("\"{}\"({})", name, values(op.operands));
    Separator comma(", ", " <{");
    for (const auto& [key, text] : properties)
      out_.text += fmt::format("{}{} = {}", comma(), key, text);
    if (!properties.empty()) out_.text += "}>";
  }
  void write_tail(const Operation& op,
                  const std::vector<std::pair<std::string, std::string>>& others) {
    Separator comma(", ", " {");
    for (const auto& [key, text] : others)
      out_.text += fmt::format("{}{} = {}", comma(), mlir_quoted(key), text);
    if (!others.empty()) out_.text += "}";
    out_.text += fmt::format(" : ({}) -> ({}){}\n", types(op.operands), types(op.results),
                             op.location == npos ? "" : location_text(vhlo_.location(op.location)));
  }
  std::string values(const std::vector<std::size_t>& list) const {
    Separator comma;
    std::string out;
    for (const std::size_t v : list) {
      const auto other = instead_.find(v);
      out += comma();
      out += other == instead_.end() ? fmt::format("%{}", v) : other->second.name;
    }
    return out;
  }
  std::string types(const std::vector<std::size_t>& values) {
    Separator comma;
    std::string out;
    for (const std::size_t v : values) {
      const auto other = instead_.find(v);
      out += comma();
      out += other == instead_.end() ? type_of(v).text : other->second.type;
      limit(out);
    }
    return out;
  }

  /// A function takes and returns what its type says.
  /// But for those of its arguments that are weights.
  void check_body(const Operation& op, const VhloType& type, std::size_t added) {
    if (op.regions.size() != 1 || !type.text.starts_with("!vhlo.func_v1"))
      refuse_damaged("a function has not one body and type");
    const Block& body = only_block(op.regions[0]);
    auto same = [&](std::span<const std::size_t> values, const std::vector<std::size_t>& types) {
      return std::ranges::equal(values, types, [&](std::size_t value, std::size_t t) {
        return type_of(value).text == vhlo_.type(t).text;
      });
    };
    if (!same(std::span(body.arguments).first(body.arguments.size() - added), type.inputs) ||
        !same(body.operations.back().operands, type.outputs))
      refuse_damaged("a function's type is not that of its body");
  }
  /// One that ends with what it returns.
  const Block& only_block(const std::vector<Block>& blocks) {
    if (blocks.size() > 1) throw Error(ErrorCode::unimplemented, "a region has several blocks");
    const auto returns = [&](const Operation& op) { return name_of(op) == "vhlo.return_v1"; };
    if (blocks.empty() || blocks[0].operations.empty() ||
        std::ranges::find_if(blocks[0].operations, returns) + 1 != blocks[0].operations.end())
      refuse_damaged("a region does not end with what it returns");
    return blocks[0];
  }

  void region(const std::vector<Block>& blocks) {
    only_block(blocks);
    out_.text += "{\n";
    for (const Block& block : blocks) {
      if (!block.arguments.empty()) arguments(block.arguments);
      for (const Operation& op : block.operations) operation(op);
    }
    out_.text += "}";
  }
  void arguments(const std::vector<std::size_t>& values) {
    Separator comma;
    out_.text += "^bb0(";
    for (const std::size_t v : values) {
      out_.text += fmt::format("{}%{}: {}", comma(), v, type_of(v).text);
      limit(out_.text);
    }
    out_.text += "):\n";
  }

  /// A function of other arguments than its type says.
  void taking_weights(const Operation& op, const Named& own) {
    const Block& body = op.regions[0][0];
    const std::string type =
        fmt::format("#vhlo.type_v1<{}>",
                    vhlo_function(types(body.arguments), types(body.operations.back().operands)));
    std::vector<std::pair<std::string_view, std::string_view>> properties;
    for (const auto& [key, value] : own) {
      std::string_view text = vhlo_.text(value);
      if (key == "function_type") text = type;
      if (key == "arg_attrs") text = "#vhlo.array_v1<[]>";
      properties.emplace_back(key, text);
    }
    write_with(op, name_of(op), properties, discardable(op));
  }

  // Tokens of ordered effects begin and end with the program, and which platform it runs on is
  // known: neither is an argument of ours. The last `added` are weights.
  void main(const Operation& op, const Named& own, std::size_t added) {
    has_main_ = true;
    const Block& body = op.regions[0][0];
    const std::vector<std::size_t>& about =
        vhlo_.attribute(Vhlo::find(own, "arg_attrs"), Kind::array, "arg_attrs").items;
    std::vector<std::size_t> inputs, outputs;
    std::string hidden;
    const std::size_t given = body.arguments.size() - added;
    for (std::size_t i = 0; i < given; ++i) {
      const VhloType& type = type_of(body.arguments[i]);
      if (type.is_token)
        hidden += fmt::format("%{} = \"vhlo.create_token_v1\"() : () -> {}\n", body.arguments[i],
                              type.text);
      else if (i < about.size() && is_platform(vhlo_, about[i]))
        hidden += fmt::format(
            "%{} = \"vhlo.constant_v1\"() <{{value = #vhlo.tensor_v1<dense<{}> : {}>}}> : () -> "
            "{}\n",
            body.arguments[i], platform_number(exported_), type.builtin, type.text);
      else
        inputs.push_back(body.arguments[i]);
    }
    const Operation& end = body.operations.back();
    for (const std::size_t v : end.operands)
      if (!type_of(v).is_token) outputs.push_back(v);
    signature(inputs, outputs);
    for (std::size_t i = given; i < body.arguments.size(); ++i) {
      out_.parameters.push_back(static_cast<int>(out_.inputs.size() + i - given));
      inputs.push_back(body.arguments[i]);
    }
    out_.weights = std::move(prepared_.weights.values);
    out_.text += fmt::format(
        "\"vhlo.func_v1\"() <{{arg_attrs = #vhlo.array_v1<[]>, function_type = #vhlo.type_v1<{}>, "
        "res_attrs = "
        "#vhlo.array_v1<[]>, sym_name = #vhlo.string_v1<\"main\">, sym_visibility = "
        "#vhlo.string_v1<\"public\">}}> ({{\n",
        vhlo_function(types(inputs), types(outputs)));
    if (!inputs.empty() || !hidden.empty()) arguments(inputs);
    out_.text += hidden;
    for (const Operation& inner : body.operations)
      if (&inner != &end) operation(inner);
    Operation returned;
    returned.operands = outputs;
    write_head(returned, "vhlo.return_v1", {});
    write_tail(returned, {});
    out_.text += "}) : () -> ()\n";
  }

  void signature(const std::vector<std::size_t>& inputs, const std::vector<std::size_t>& outputs) {
    for (const std::size_t v : inputs) out_.inputs.push_back(open_type(type_of(v).builtin));
    for (const std::size_t v : outputs) out_.outputs.push_back(open_type(type_of(v).builtin));
    for (std::size_t i = 0; i < inputs.size(); ++i) out_.parameters.push_back(static_cast<int>(i));
    out_.input_names.resize(inputs.size());
    out_.output_names.resize(outputs.size());
    if (!exported_) return;
    std::vector<Type> kept;
    for (const int i : exported_->kept)
      kept.push_back(exported_->inputs.at(static_cast<std::size_t>(i)));
    if (kept != out_.inputs)
      refuse_damaged(fmt::format("the module takes {}, what was exported says {}",
                                 to_string(out_.inputs), to_string(kept)));
    out_.parameters = exported_->kept;
    out_.inputs = exported_->inputs;
    out_.input_names = exported_->input_names;
    out_.input_names.resize(out_.inputs.size());
    if (exported_->output_names.size() == outputs.size())
      out_.output_names = exported_->output_names;
  }

  // `own`: the operation's own attributes, by name. Asks who serves the target: a handler that the
  // user loads, or nobody who is needed, keeps the operation (written as it is, or as a reshape);
  // a function of the host makes it a call of ours, of which the text holds only the site's number.
  // Afterwards the operation is written and, for a host function, `out_.sites` has one site more.
  // Throws an Error for a target that nobody serves with these types, and for calls that bring
  // computations along.
  void custom_call(const Operation& op, Named own) {
    const std::string target(
        vhlo_.attribute(Vhlo::find(own, "call_target_name"), Kind::string, "a custom call's target")
            .bytes);
    if (const auto tilings =
            std::ranges::find(own, "result_tilings", [](const auto& item) { return item.first; });
        tilings != own.end() && vhlo_.attribute(tilings->second).items.empty())
      own.erase(tilings);
    std::string name = "vhlo.custom_call_v1";
    if (own.back().first == "result_tilings") name = name_of(op);
    const Server server = server_of(target);
    if (server == Server::handler) out_.handlers.push_back(target);
    if (server != Server::host) {
      const auto builtins = [&](const std::vector<std::size_t>& values) {
        std::vector<std::string> out;
        for (const std::size_t v : values) out.push_back(type_of(v).builtin);
        return out;
      };
      require_signature(target, server, builtins(op.operands), builtins(op.results));
      if (server == Server::nobody) return write(op, "vhlo.reshape_v1", {}, {});
      return write(op, name, own, discardable(op));
    }
    if (!vhlo_.attribute(Vhlo::find(own, "called_computations"), Kind::array, "called computations")
             .items.empty())
      throw Error(ErrorCode::unimplemented, brings_computations(target));
    Attributes attributes;
    host_attributes(attributes, Vhlo::find(own, "backend_config"));
    auto others = discardable(op);
    if (op.attributes)
      for (const auto& [key, value] : vhlo_.dictionary(*op.attributes))
        if (key == "mhlo.backend_config") host_attributes(attributes, value);
    std::erase_if(others, [](const auto& item) { return item.first == "mhlo.backend_config"; });
    const std::string config =
        fmt::format("#vhlo.dict_v1<{{#vhlo.string_v1<\"{}\"> = #vhlo.integer_v1<{} : i64>}}>",
                    host::site_attribute, out_.sites.size());
    const std::string call = fmt::format("#vhlo.string_v1<\"{}\">", host::call_target);
    const std::string in_rows = rows(op.operands), out_rows = rows(op.results);
    write_head(op, "vhlo.custom_call_v1",
               {{"api_version", "#vhlo<api_version_v1 API_VERSION_TYPED_FFI>"},
                {"backend_config", config},
                {"call_target_name", call},
                {"called_computations", "#vhlo.array_v1<[]>"},
                {"has_side_effect", vhlo_.attribute(Vhlo::find(own, "has_side_effect")).text},
                {"operand_layouts", in_rows},
                {"output_operand_aliases",
                 vhlo_.attribute(Vhlo::find(own, "output_operand_aliases")).text},
                {"result_layouts", out_rows}});
    write_tail(op, others);
    ImportedCall about{target, std::move(attributes),  {}, {}, false,
                       false,  place_in_file(name_, 0)};
    if (const Location at = vhlo_.location(op.location); at.line)
      about.place = place_in_file(at.file, at.line);
    about.side_effect =
        vhlo_.attribute(Vhlo::find(own, "has_side_effect"), Kind::boolean, "has_side_effect")
            .integer != 0;
    about.operands = buffers(op.operands, about.ordered);
    about.results = buffers(op.results, about.ordered);
    out_.sites.push_back(site_of(std::move(about)));
  }

  void host_attributes(Attributes& out, std::size_t config) {
    const VhloAttribute& found = vhlo_.attribute(config);
    if (found.kind == Kind::dictionary) {
      for (const auto& [key, value] : vhlo_.dictionary(config))
        out.set(key, vhlo_.host_attribute(value));
    } else if (found.kind == Kind::string && !found.bytes.empty()) {
      out.set("backend_config", std::string(found.bytes));
    }
  }

  std::vector<Type> buffers(const std::vector<std::size_t>& values, bool& tokens) {
    std::vector<Type> out;
    for (const std::size_t v : values) {
      if (type_of(v).is_token)
        tokens = true;
      else
        out.push_back(mlir_type(type_of(v).builtin));
    }
    return out;
  }

  std::string rows(const std::vector<std::size_t>& values) {
    Separator comma;
    std::string out;
    for (const std::size_t v : values)
      out += fmt::format("{}#vhlo.tensor_v1<{}>", comma(),
                         mlir_layout(static_cast<std::int64_t>(type_of(v).dims.size())));
    return fmt::format("#vhlo.array_v1<[{}]>", out);
  }

  static constexpr auto npos = Operation::no_location;
  const std::string &name_, &entry_;
  const Exported* const exported_;
  Bytecode code_;
  Vhlo vhlo_;
  const std::size_t most_;
  bool has_main_ = false;
  struct Instead {
    std::string name, type;
  };
  std::map<std::size_t, Instead> instead_;  // of values, in the operation that is written
  std::size_t steps_ = 0;                   // of ours
  Prepared prepared_;
  Imported out_;
};

}  // namespace

Imported read_portable(std::string_view bytes, const std::string& name, const std::string& entry,
                       const Exported* exported) {
  Bytecode code = read_bytecode(bytes);
  const std::string producer(code.producer);
  try {
    return Writer(std::move(code), bytes.size(), name, entry, exported).write();
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{} (the file is of {})", e.what(), producer));
  }
}

}  // namespace postern::internal::imported
