// Writing StableHLO: the equations of a program.
//
// The text grows in one buffer, `out_`: inlined() writes a program's equations where it stands, and
// each primitive's rule writes its operation through simple(), op() or write(). What is called by
// name is a function of its own, gathered in `functions_`. What has an order, calls and ordered
// taps, hangs on a token, which is made once the first of them asks. module.cc writes what is
// around.
#include "lower/lowering.h"

#include <algorithm>
#include <utility>

#include "core/enum.h"
#include "core/lists.h"
#include "core/text.h"
#include "lower/constants.h"
#include "lower/order.h"
#include "trace/literal.h"

namespace postern::internal {

namespace {

// By DType, without the token, which is last.
constexpr const char* element_names[dtype_count] = {"i1",           "i2",
                                                    "i4",           "i8",
                                                    "i16",          "i32",
                                                    "i64",          "ui2",
                                                    "ui4",          "ui8",
                                                    "ui16",         "ui32",
                                                    "ui64",         "f16",
                                                    "bf16",         "f32",
                                                    "f64",          "complex<f32>",
                                                    "complex<f64>", "f8E5M2",
                                                    "f8E4M3FN",     "f8E4M3B11FNUZ",
                                                    "f8E5M2FNUZ",   "f8E4M3FNUZ",
                                                    "f8E4M3",       "f8E3M4",
                                                    "f8E8M0FNU",    "f4E2M1FN"};

template <class... Text>
void append(fmt::memory_buffer& out, const Text&... texts) {
  (out.append(std::string_view(texts)), ...);
}

void append_int(fmt::memory_buffer& out, std::int64_t value) {
  const fmt::format_int digits(value);
  out.append(digits.data(), digits.data() + digits.size());
}

void append_ssa(fmt::memory_buffer& out, Ssa value) {
  out.push_back('%');
  append_int(out, value.id);
}

void append_type(fmt::memory_buffer& out, const Type& type) {
  if (type.dtype == DType::token) return append(out, Lowering::token_type);
  append(out, "tensor<");
  for (std::int64_t d : type.dims) {
    append_int(out, d);
    out.push_back('x');
  }
  check_enum("DType", type.dtype, DType::token);
  append(out, element_names[static_cast<int>(type.dtype)]);
  out.push_back('>');
}

/// Marks the values that an equation or an output reads.
std::vector<bool> needed_in(const Program& program) {
  std::vector<bool> needed(program.types.size());
  for (const Equation& e : program.equations)
    for (ValueId v : e.operands) needed[at(v)] = true;
  for (ValueId v : program.outputs) needed[at(v)] = true;
  return needed;
}

}  // namespace

std::string Lowering::string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\' || c < ' ' || c > '~')
      out += fmt::format("\\{:02X}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + "\"";
}

std::string Lowering::symbol(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (is_digit(c) && out.empty()) out = '_';  // no digit first
    if (is_of_name(c) || c == '.')
      out += c;
    else
      out += '_';
  }
  if (out.empty() || out[0] == '.') return "_" + out;
  return out;
}

std::string Lowering::list(std::span<const Ssa> values) {
  Separator comma;
  std::string out;
  for (const Ssa value : values) out += fmt::format("{}%{}", comma(), value.id);
  return out;
}

std::string Lowering::assigned(std::span<const Ssa> results) {
  if (results.empty()) return {};
  return list(results) + " = ";
}

std::string Lowering::layout(std::int64_t rank, Dims axes) {
  if (axes.empty())
    for (std::int64_t a = rank; a-- > 0;) axes.push_back(a);
  std::string list;  // of a scalar there is none, not even brackets
  if (!axes.empty()) list = fmt::format("[{}]", fmt::join(axes, ", "));
  return fmt::format("dense<{}> : tensor<{}xindex>", list, rank);
}

std::string Lowering::alias(int result, int results, int operand) {
  return fmt::format(
      "#stablehlo.output_operand_alias<output_tuple_indices = [{}], operand_index = {}, "
      "operand_tuple_indices = []>",
      results > 1 ? std::to_string(result) : "", operand);
}

std::string Lowering::type(const Type& type) {
  fmt::memory_buffer out;
  append_type(out, type);
  return fmt::to_string(out);
}

template <class Value, class TypeOf>
void Lowering::write_operation(std::string_view hlo, std::size_t n, const Value& value,
                               std::string_view attributes, const TypeOf& type_of) {
  append(out_, " = \"stablehlo.", hlo, "\"(");
  for (std::size_t i = 0; i < n; ++i) {
    if (i) append(out_, ", ");
    append_ssa(out_, value(i));
  }
  append(out_, ")");
  if (!attributes.empty()) append(out_, " {", attributes, "}");
  append(out_, " : (");
  for (std::size_t i = 0; i < n; ++i) {
    if (i) append(out_, ", ");
    append_type(out_, type_of(i));
  }
  append(out_, ") -> ");
}

Ssa Lowering::op(std::string_view hlo, std::initializer_list<Ssa> ins,
                 std::initializer_list<const Type*> types, const Type& result,
                 std::string_view attributes) {
  const Ssa r = fresh();
  append(out_, "    ");
  append_ssa(out_, r);
  write_operation(
      hlo, ins.size(), [&](std::size_t i) { return ins.begin()[i]; }, attributes,
      [&](std::size_t i) -> const Type& { return *types.begin()[i]; });
  append_type(out_, result);
  out_.push_back('\n');
  return r;
}

std::string_view Lowering::precision_of(const Equation& e, bool highest) const {
  const DType dtype = operand_type(e, 0).dtype;
  const bool asks = compiler().rounds_products || highest;
  if (!asks || (dtype != DType::f32 && dtype != DType::c64)) return {};
  return ", precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]";
}

void Lowering::simple(const Equation& e, std::string_view hlo, std::string_view attributes) {
  append(out_, "    ");
  for (int i = 0; i < e.results; ++i) {
    if (i) append(out_, ", ");
    const Ssa result = fresh();
    append_ssa(out_, result);
    define(e, i, result);
  }
  write_operation(
      hlo, e.operands.size(), [&](std::size_t i) { return operand(e, i); }, attributes,
      [&](std::size_t i) -> const Type& { return operand_type(e, i); });
  if (e.results != 1) append(out_, "(");
  for (int i = 0; i < e.results; ++i) {
    if (i) append(out_, ", ");
    append_type(out_, result_type(e, i));
  }
  if (e.results != 1) append(out_, ")");
  append(out_, "\n");
}

std::vector<Ssa> Lowering::operands(const Equation& e, std::size_t from) {
  std::vector<Ssa> values;
  for (std::size_t i = from; i < e.operands.size(); ++i) values.push_back(operand(e, i));
  return values;
}

Ssa Lowering::operand(const Equation& e, std::size_t i) {
  const Ssa value = latest(env_[at(e.operands[i])]);
  mark_read(value);
  return value;
}

Ssa Lowering::latest(Ssa value) const {
  while (at(value.id) < instead_.size() && instead_[at(value.id)] >= 0)
    value.id = instead_[at(value.id)];
  return value;
}

void Lowering::mark_read(Ssa value) {
  if (read_.size() <= at(value.id)) read_.resize(2 * size_of(next_), false);
  read_[at(value.id)] = true;
}

bool Lowering::may_forward(Ssa value) const {
  value = latest(value);
  const bool is_read = at(value.id) < read_.size() && read_[at(value.id)];
  return value.id >= outside_ && !is_read;
}

void Lowering::forward(Ssa value, Ssa result) {
  instead_.resize(std::max(instead_.size(), at(value.id) + 1), -1);
  instead_[at(value.id)] = result.id;
}

std::vector<Lowering::Awaited> Lowering::awaited() const {
  std::vector<Awaited> still;
  for (const auto& [value, type] : awaited_)
    if (may_forward(value)) still.push_back({latest(value), type});
  return still;
}

Lowering::Inner::Inner(Lowering& out)
    : outside_(out.outside_, out.next_),
      token_(out.token_, out.token_),  // one that is made inside is not seen behind
      awaited_(out.awaited_, {}),
      token_orders_calls_(out.token_orders_calls_, false),
      asks_(out.asks_, false) {}

std::vector<Lowering::Typed> Lowering::typed(std::span<const Ssa> values,
                                             const std::vector<std::string>& types) {
  std::vector<Typed> typed;
  for (std::size_t i = 0; i < values.size(); ++i) typed.push_back({values[i], types[i]});
  return typed;
}

void Lowering::region(const std::vector<std::string>& argument_types,
                      const std::function<std::vector<Typed>(std::span<const Ssa>)>& body) {
  std::vector<Ssa> arguments;
  const Inner inner(*this);
  append(out_, "{\n");
  if (!argument_types.empty()) {
    append(out_, "    ^bb0(");
    Separator comma;
    for (const std::string& argument : argument_types) {
      arguments.push_back(fresh());
      write("{}%{}: {}", comma(), arguments.back().id, argument);
    }
    append(out_, "):\n");
  }
  const std::vector<Typed> results = body(arguments);
  Separator before_value, before_type;
  append(out_, "    \"stablehlo.return\"(");
  for (const Typed& result : results) write("{}%{}", before_value(), result.value.id);
  append(out_, ") : (");
  for (const Typed& result : results) write("{}{}", before_type(), result.type);
  append(out_, ") -> ()\n    }");
}

std::vector<Ssa> Lowering::while_loop(std::span<const Ssa> carry,
                                      const std::vector<std::string>& types,
                                      const std::function<Ssa(std::span<const Ssa>)>& goes_on,
                                      const Body& step) {
  const std::vector<Ssa> results = fresh(types.size());
  write("    {}\"stablehlo.while\"({}) (", assigned(results), list(carry));
  region(types, [&](std::span<const Ssa> in) {
    return std::vector<Typed>{{goes_on(in), "tensor<i1>"}};
  });
  write(", ");
  region(types, [&](std::span<const Ssa> in) { return typed(step(in), types); });
  write(") : ({0}) -> ({0})\n", fmt::join(types, ", "));
  return results;
}

void Lowering::by_rule(const Equation& e) {
  if (e.primitive->lower) {
    PlaceScope::Replace at(e.place);
    e.primitive->lower(*this, e);
  } else {
    simple(e, e.primitive->hlo);
  }
}

/// Returns whether an operation's results have no elements, but extents through which XLA would
/// loop all the same, as concatenate does.
static bool is_long_and_empty(const Program& program, const Equation& e) {
  constexpr double most_steps = 1 << 20;
  const bool holds_programs = e.params && !programs_of(*e.params).empty();
  if (e.results == 0 || e.primitive->site || e.primitive->may_call ||
      effect_of(e) != Effect::pure || holds_programs)
    return false;
  for (int i = 0; i < e.results; ++i) {
    const Type& type = program.type(e.first + i);
    double steps = 1;  // beside the extent of 0
    for (const std::int64_t d : type.dims) steps *= d == 0 ? 1.0 : static_cast<double>(d);
    if (type.size() > 0 || steps <= most_steps) return false;
  }
  return true;
}

void Lowering::equation(const Equation& e) {
  if (is_long_and_empty(*program_, e)) {  // nothing to compute, so no loop for it
    for (int i = 0; i < e.results; ++i) define(e, i, constant("", program_->type(e.first + i)));
    return;
  }
  if (e.primitive == &literal_p) {
    const auto& p = as<LiteralParams>(*e.params);
    const Ssa value = constant(literal_text(p.number, p.type.dtype), p.type);
    set_known(value, {.constant = true, .every = &p.number});
    return define(e, 0, value);
  }
  // What is nan whatever else comes needs no operation, which XLA might fold to something else.
  const std::size_t nan = nan_operand(*this, e);
  if (nan < e.operands.size()) return define(e, 0, operand(e, nan));
  const bool folds = folds_wrongly(e), gathers = gathers_wrongly(e);
  if (folds || gathers) return by_rule_of_hidden(e, folds, gathers);
  by_rule(e);
  if (moves_only(e)) set_known(env_[at(e.first)], known(e, 0));
}

void Lowering::equations(const Program& program) {
  if (!in_parts(program)) equations(std::span(program.equations));
}

void Lowering::equations(std::span<const Equation> equations) {
  if (!waits_in(equations)) {
    for (const Equation& e : equations) equation(e);
  } else {
    for (const Equation* e : starts_first(equations)) equation(*e);
  }
}

std::vector<Ssa> Lowering::inlined(const Program& program, std::span<const Ssa> inputs) {
  const Scoped inner_program(program_, &program);
  const Scoped inner_env(env_, std::vector<Ssa>(program.types.size()));
  const Scoped inner_needed(needed_, needed_in(program));
  for (std::size_t i = 0; i < inputs.size(); ++i) env_[at(program.inputs[i])] = inputs[i];
  equations(program);
  std::vector<Ssa> outputs;
  for (ValueId v : program.outputs) outputs.push_back(latest(env_[at(v)]));
  return outputs;
}

void Lowering::function(const std::string& name, const std::vector<Type>& inputs,
                        const std::vector<Type>& outputs, const Body& body) {
  fmt::memory_buffer outer;
  std::swap(outer, out_);  // so that the function stands beside what calls it
  const Inner inner(*this);
  token_ = {};  // a function sees no value of the outer one
  std::vector<Ssa> arguments;
  Separator before_argument, before_output;
  write("  func.func private @{}(", name);
  for (const Type& t : inputs) {
    write("{}%{}: {}", before_argument(), next_, type(t));
    arguments.push_back(fresh());
    mark_read(arguments.back());
  }
  write(") -> (");
  for (const Type& t : outputs) write("{}{}", before_output(), type(t));
  write(") {{\n");
  end_function(body(arguments), outputs);
  functions_ += fmt::to_string(out_);
  std::swap(outer, out_);
}

void Lowering::end_function(std::span<const Ssa> results, const std::vector<Type>& types) {
  write("    return");
  Separator before_value(","), before_type(",");
  for (const Ssa result : results) write("{} %{}", before_value(), result.id);
  if (!results.empty()) write(" :");
  for (std::size_t i = 0; i < results.size(); ++i) write("{} {}", before_type(), type(types[i]));
  write("\n  }}\n");
}

std::vector<Ssa> Lowering::called(const std::string& name, std::span<const Ssa> inputs,
                                  const std::vector<Type>& input_types,
                                  const std::vector<Type>& output_types,
                                  std::string_view attributes) {
  const std::vector<Ssa> results = fresh(output_types.size());
  std::vector<std::string> in, out;
  for (const Type& t : input_types) in.push_back(type(t));
  for (const Type& t : output_types) out.push_back(type(t));
  write("    {}func.call @{}({})", assigned(results), name, list(inputs));
  if (!attributes.empty()) write(" {{{}}}", attributes);
  write(" : ({}) -> ({})\n", fmt::join(in, ", "), fmt::join(out, ", "));
  return results;
}

std::string Lowering::written_function(std::string_view text, std::string_view placeholder) {
  const std::string name = fmt::format("postern_imported_{}", written_++);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(placeholder, begin), text.size());
    functions_ += text.substr(begin, end - begin);
    if (end < text.size()) functions_ += name;
    begin = end + placeholder.size();
  }
  return name;
}

std::vector<Ssa> Lowering::kept(ParamsPtr params, const Program& by_default,
                                std::span<const Ssa> inputs) {
  const std::string name = fmt::format("postern_block_{}", blocks_++), inner = default_of(name);
  const std::vector<Type> in = by_default.input_types(), out = by_default.output_types();
  function(inner, in, out, [&](std::span<const Ssa> x) { return inlined(by_default, x); });
  const std::size_t begin = functions_.size();  // what is from here on may be replaced
  function(name, in, out, [&](std::span<const Ssa> x) { return called(inner, x, in, out); });
  kept_.push_back({.function = name,
                   .params = std::move(params),
                   .inputs = in,
                   .outputs = out,
                   .begin = begin,
                   .end = functions_.size()});
  return called(name, inputs, in, out);
}

Ssa Lowering::token() {
  if (token_.id < 0) {
    token_ = fresh();
    write("    %{} = stablehlo.create_token : !stablehlo.token\n", token_.id);
  }
  return token_;
}

std::size_t Lowering::add_site(SitePtr site) {
  sites_.push_back(std::move(site));
  return options_.first_site + sites_.size() - 1;
}

Ssa Lowering::axis_index(const std::string& axis) const {
  const auto named = std::ranges::find(mesh_->axes(), axis, &MeshAxis::name);
  return axis_indices_[size_of(named - mesh_->axes().begin())];
}

std::string Lowering::channel() {
  return fmt::format("channel_handle = #stablehlo.channel_handle<handle = {}, type = 1>",
                     ++channels_);
}

Ssa Lowering::asking(const std::function<void()>& step) {
  const Scoped asks(asks_, partitioned() && mesh_);
  const Scoped answer(answer_, Ssa());
  step();
  return answer_;
}

}  // namespace postern::internal
