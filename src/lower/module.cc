// Writing StableHLO: a module around a program's equations.
#include <algorithm>

#include "core/check.h"
#include "core/text.h"
#include "lower/lowering.h"

namespace postern::internal {

/// Returns what options say of input or result `i`; the default where their list has ended before.
template <class T>
static T said_of(const std::vector<T>& list, std::size_t i) {
  if (i < list.size()) return list[i];
  return {};
}

std::string Lowering::where_it_runs(std::size_t results, int device) const {
  if (!partitioned()) return {};
  std::string one = "{manual}";  // what is said of each result; of none as of one
  if (!mesh_) {
    const auto found = std::ranges::find(options_.devices, device);
    check(device < 0 || found != options_.devices.end(),
          "device {} is not one of those that the program runs on, {}", device,
          fmt::join(options_.devices, ", "));
    std::ptrdiff_t partition = 0;
    if (device >= 0) partition = found - options_.devices.begin();
    one = fmt::format("{{maximal device={}}}", partition);
  }
  if (results < 2) return fmt::format(", mhlo.sharding = \"{}\"", one);
  return fmt::format(", mhlo.sharding = \"{{{}}}\"",
                     fmt::join(std::vector<std::string>(results, one), ", "));
}

Ssa Lowering::sharding_marker(const char* target, Ssa x, const Type& from, const Type& to,
                              std::string_view sharding) {
  const Ssa marked = fresh();
  write(
      "    %{} = \"stablehlo.custom_call\"(%{}) {{call_target_name = \"{}\", mhlo.sharding = "
      "\"{}\"}} : ({}) -> {}\n",
      marked.id, x.id, target, sharding, type(from), type(to));
  return marked;
}

Ssa Lowering::with_sharding(Ssa x, const Type& type, std::string_view sharding) {
  // XLA:CPU gathers integers of two bits past the end of its memory, so they move as bytes. Behind
  // a barrier, for it would rather move what a conversion makes larger before that.
  if (bit_width(type.dtype) == 2) {
    Type bytes = type;
    bytes.dtype = DType::u8;
    if (is_signed(type.dtype)) bytes.dtype = DType::s8;
    x = op("convert", {x}, {&type}, bytes);
    x = op("optimization_barrier", {x}, {&bytes}, bytes);
    x = sharding_marker("Sharding", x, bytes, bytes, sharding);
    x = op("convert", {x}, {&bytes}, type);
  }
  return sharding_marker("Sharding", x, type, type, sharding);
}

/// Returns whether XLA might gather an operand of two bits, see with_sharding(): in all but what
/// has them lie where they lay, and what holds programs.
bool Lowering::gathers_wrongly(const Equation& e) const {
  if (!partitioned() || mesh_ || (e.params && !programs_of(*e.params).empty())) return false;
  const bool stays =
      e.primitive->hlo && e.operands.size() == 1 && operand_type(e, 0).dims == result_type(e).dims;
  return !stays && std::ranges::any_of(e.operands, [&](ValueId v) {
    return bit_width(program_->type(v).dtype) == 2;
  });
}

// Writes `program` as a module whose @main takes those inputs that the options make no constant of:
// the head, then the constants, the body, and behind it the functions that it calls. The Module has
// the text and what the text alone does not say. The Lowering is spent afterwards. Throws what the
// primitives' rules throw.
Module Lowering::module(const Program& program) {
  Module m;
  m.devices = options_.devices;  // of one device as well, which need not be the first
  m.mesh = options_.mesh;
  leaves_zeros_ = partitioned() && internal::calls_back(program);
  write("module @{} ", symbol(options_.name));
  if (partitioned())
    write("attributes {{mhlo.num_partitions = {} : i32, mhlo.num_replicas = 1 : i32}} ",
          m.devices.size());
  write("{{\n  func.func public @main(");
  std::vector<Ssa> inputs = write_parameters(program, m);
  write(") -> (");
  write_results(program, m);
  write(") {{\n");

  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (const void* data = said_of(options_.constants, i))
      inputs[i] = bytes_constant(program.type(program.inputs[i]), data);
  if (effect_of(program) == Effect::ordered) token();
  std::vector<Ssa> outputs = inlined(program, inputs);
  // The attribute of a result would have XLA move integers of two bits as they are, which it does
  // wrongly; with_sharding() moves them as bytes.
  for (std::size_t i = 0; i < m.result_shardings.size(); ++i)
    if (const Type& type = m.results[i]; m.result_shardings[i] && bit_width(type.dtype) == 2)
      outputs[i] =
          with_sharding(outputs[i], type, hlo_text(*m.result_shardings[i], type.rank(), m.devices));
  end_function(outputs, m.results);

  for (Module::Kept& k : kept_) {  // their places so far are in functions_, which comes behind out_
    k.begin += out_.size();
    k.end += out_.size();
  }
  m.text = fmt::to_string(out_) + functions_ + "}\n";
  m.sites = std::move(sites_);
  m.kept = std::move(kept_);
  return m;
}

std::vector<Ssa> Lowering::write_parameters(const Program& program, Module& m) {
  std::vector<Ssa> inputs(program.inputs.size());
  Separator comma;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (said_of(options_.constants, i)) continue;
    const Type& input_type = program.type(program.inputs[i]);
    inputs[i] = fresh();
    write("{}%{}: {}", comma(), inputs[i].id, type(input_type));
    std::vector<std::string> attributes;
    if (partitioned()) {
      const std::optional<Sharding> s = said_of(options_.inputs, i);
      std::string sharding = "{replicated}";
      if (s) sharding = hlo_text(*s, input_type.rank(), m.devices);
      attributes.push_back(fmt::format("mhlo.sharding = \"{}\"", sharding));
      m.parameter_shardings.push_back(s);
    }
    const bool donated = said_of(options_.donated, i);
    if (donated) attributes.emplace_back("jax.buffer_donor = true");
    if (!attributes.empty()) write(" {{{}}}", fmt::join(attributes, ", "));
    if (donated)
      m.donated.push_back(static_cast<int>(i));
    else
      mark_read(inputs[i]);  // its memory is the caller's
    m.parameters.push_back(static_cast<int>(i));
  }
  return inputs;
}

/// Writes the types of main's results. Of a partitioned module each has its sharding; where there
/// is none XLA chooses, and `result_ends` says where it may still be written.
void Lowering::write_results(const Program& program, Module& m) {
  m.results = program.output_types();
  Separator comma;
  for (std::size_t i = 0; i < m.results.size(); ++i) {
    write("{}{}", comma(), type(m.results[i]));
    if (!partitioned()) continue;
    m.result_shardings.push_back(said_of(options_.outputs, i));
    m.result_ends.push_back(out_.size());
    if (const auto& s = m.result_shardings.back())
      write(" {{mhlo.sharding = \"{}\"}}", hlo_text(*s, m.results[i].rank(), m.devices));
  }
}

Module Lowering::functions() {
  Module m;
  m.text = std::move(functions_);
  m.sites = std::move(sites_);
  return m;
}

}  // namespace postern::internal
