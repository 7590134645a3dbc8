// shard_map: a program for one device's part of its operands, run on each device of a mesh. Lowered
// as a manual region of a program that XLA partitions. The derivative rules are those of JAX's
// shard_map without checks of replication: the cotangent of a result that several devices hold is
// shared out among them, and that of an operand that several hold is summed over them.
#include "shard/shard_map.h"

#include <postern/shard.h>

#include "control/control.h"
#include "core/lists.h"
#include "custom/custom.h"
#include "ops/extents.h"
#include "ops/shape.h"
#include "shard/collective.h"
#include "transform/split.h"
#include "transform/transpose.h"

namespace postern::internal {

namespace {

thread_local const Mesh* mesh_in_trace = nullptr;

struct ConstrainParams {
  Sharding sharding;
  auto fields(Fields sink) const { return sink.field("sharding", to_string(sharding)); }
};

Types part_types(const Mesh& mesh, const std::vector<P>& specs, const Types& whole) {
  Types out;
  for (std::size_t i = 0; i < whole.size(); ++i)
    out.push_back(Sharding(mesh, specs[i]).part_type(whole[i]));
  return out;
}

Type whole_type(const Mesh& mesh, const P& spec, const Type& part) {
  check(spec.parts().size() <= part.dims.size(),
        "shard_map: {} of a result names {} axes, the result is {}", to_string(spec),
        spec.parts().size(), to_string(part));
  Type out = part;
  for (std::size_t i = 0; i < spec.parts().size(); ++i)
    for (const std::string& name : spec.parts()[i])
      out.dims[i] = extent_product(out.dims[i], mesh.size(name));
  return out;
}

/// Binds the equation. What `body` captured are its first inputs, and every device sees the whole.
Tensors bind_map(const Mesh& mesh, const Closed& body, std::vector<P> in, std::vector<P> out,
                 TensorSpan x) {
  in.insert(in.begin(), body.captures.size(), P());
  return bind_n(shard_map_p,
                make_params(ShardMapParams{mesh, std::move(in), std::move(out), body.program}),
                joined({body.captures, x}));
}

/// Traces what a rule writes for one part.
Closed trace_part(const ShardMapParams& p, const Types& types, const TensorFunction& f) {
  const MeshScope scope(p.mesh);
  return trace_inner("shard_map", types, f);
}

Types shard_map_type(const Params* params, TypeSpan operands) {
  const auto& p = as<ShardMapParams>(*params);
  check(operands.size() == p.body->inputs.size(),
        "shard_map: the function has {} inputs, {} operands came", p.body->inputs.size(),
        operands.size());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Type part = Sharding(p.mesh, p.in[i]).part_type(operands[i]),
               &takes = p.body->type(p.body->inputs[i]);
    check(part.dtype == takes.dtype && part.dims == takes.dims,
          "shard_map: a part of operand {} is {}, the function takes {}", i, to_string(part),
          to_string(takes));
  }
  Types out;
  for (std::size_t i = 0; i < p.out.size(); ++i)
    out.push_back(whole_type(p.mesh, p.out[i], p.body->type(p.body->outputs[i])));
  return out;
}

/// A shard_map of the body's jvp; a tangent is cut as its value is.
Jvp shard_map_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const auto& p = op.as<ShardMapParams>();
  const std::vector<bool> has_tangent = present(dx);  // by operand
  const Tensors operands = joined({x, kept(dx)});
  std::vector<P> in = p.in, out = p.out;
  append(in, where_marked(p.in, has_tangent));
  std::vector<bool> gives_tangent;  // by result
  const Closed body = trace_part(
      p, part_types(p.mesh, in, types_of(operands)),
      [&](TensorSpan parts) { return packed_jvp(*p.body, parts, has_tangent, gives_tangent); });
  append(out, where_marked(p.out, gives_tangent));
  const Tensors both = bind_map(p.mesh, body, std::move(in), std::move(out), operands);
  const std::size_t results = p.out.size();
  return {head(both, results), placed(gives_tangent, std::span(both).subspan(results))};
}

/// Divides a cotangent by the number of devices that hold the result, those along `axes`. How many
/// of them are processes, no text says: a saved program may run on others.
Tensor shared_out(const Tensor& ct, const Mesh& mesh, const std::vector<std::string>& axes) {
  if (axes.empty()) return ct;
  const CollectiveParams holders{mesh, axes};
  if (spans_processes(mesh)) {
    const Tensor count = bind1(axis_count_p, make_params(holders), {});
    return ct / convert_to(count, DType::f32, true);
  }
  if (holders.count() == 1) return ct;
  return ct / static_cast<double>(holders.count());
}

/// A shard_map of the body's transpose. It takes the known operands and the cotangents that there
/// are (`arrives`), and gives those of the other operands that anything flows into (`leaves`).
Tensors shard_map_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan) {
  const auto& p = op.as<ShardMapParams>();
  const std::vector<bool> known = present(x), arrives = present(ct);
  const Tensors operands = joined({kept(x), kept(ct)});
  std::vector<P> in = where_marked(p.in, known), out;
  append(in, where_marked(p.out, arrives));
  std::vector<bool> leaves;
  const Closed body =
      trace_part(p, part_types(p.mesh, in, types_of(operands)), [&](TensorSpan parts) {
        Tensors cotangents = placed(arrives, parts.subspan(count(known)));
        for (std::size_t i = 0; i < ct.size(); ++i)
          if (arrives[i])
            cotangents[i] = shared_out(cotangents[i], p.mesh, unnamed_axes(p.mesh, p.out[i]));
        Tensors into = transpose_of(*p.body, placed(known, parts), cotangents);
        for (std::size_t i = 0; i < x.size(); ++i)
          if (into[i].has_value())
            into[i] = sum_over(p.mesh, unnamed_axes(p.mesh, p.in[i]), into[i]);
        leaves = present(into);
        return kept(into);
      });
  append(out, where_marked(p.in, leaves));
  return placed(leaves, bind_map(p.mesh, body, std::move(in), std::move(out), operands));
}

/// What the unknown half needs of each device leaves the known one side by side, on a new first
/// axis, along the mesh axes where it may differ from device to device. Along others devices know
/// that they agree on it, and still do in the unknown half. The known half is bound here; the
/// result holds its outputs and, as the rest, a shard_map of the residuals, each without that axis
/// again, and the unknown operands.
Primitive::SplitResult shard_map_split(const Op& op, TensorSpan x, const std::vector<bool>&) {
  const auto& p = op.as<ShardMapParams>();
  const std::vector<bool> unknown = missing(x);
  const MeshScope scope(p.mesh);
  const Halves halves = split(*p.body, unknown);
  const std::size_t outputs = halves.known->outputs.size() - halves.residuals;

  const std::vector<P> known_in = where_marked(p.in, unknown, false);
  std::vector<P> known_out = where_marked(p.out, halves.unknown_outputs, false);
  const auto differ = axes_that_differ(*halves.known, p.mesh, known_in);
  std::vector<P> rest_in;  // first the residuals'
  for (std::size_t i = outputs; i < differ.size(); ++i)
    rest_in.push_back(P(std::vector<std::vector<std::string>>{differ[i]}));
  known_out.insert(known_out.end(), rest_in.begin(), rest_in.end());
  const Closed first = trace_inner("shard_map", halves.known->input_types(), [&](TensorSpan parts) {
    Tensors y = internal::apply(*halves.known, parts);
    for (std::size_t i = outputs; i < y.size(); ++i) y[i] = expand_dims(y[i], 0);
    return y;
  });
  const Tensors known = bind_map(p.mesh, first, known_in, known_out, kept(x));

  Types types = tail(first.program->output_types(), outputs);
  append(types, where_marked(p.body->input_types(), unknown));
  append(rest_in, where_marked(p.in, unknown));
  const Closed rest = trace_inner("shard_map", types, [&](TensorSpan parts) {
    Tensors in(parts.begin(), parts.end());
    for (std::size_t i = 0; i < halves.residuals; ++i) in[i] = squeeze(in[i], {0});
    return internal::apply(*halves.unknown, in);
  });
  check(rest.captures.empty(), "shard_map: a rule uses a tensor from outside of the program");

  return split_result(
      op.primitive,
      make_params(ShardMapParams{p.mesh, rest_in, where_marked(p.out, halves.unknown_outputs),
                                 rest.program}),
      halves.unknown_outputs, known, std::span(known).subspan(outputs), x);
}

/// The spec of an array that got a whole axis in front.
P with_axis_in_front(const P& spec) {
  std::vector<std::vector<std::string>> parts = spec.parts();
  parts.insert(parts.begin(), std::vector<std::string>());
  return P(std::move(parts));
}

/// A shard_map of the batched body: batch axes are whole on every device, and so is a mask.
Batched shard_map_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                        const Tensor& mask) {
  const auto& p = op.as<ShardMapParams>();
  Tensors operands;
  std::vector<P> in, out;
  std::vector<int> fronts;  // by operand: its batch axis, 0, or -1 where it has none
  for (std::size_t i = 0; i < x.size(); ++i) {
    operands.push_back(batch_front(x[i], axes[i], size, false));
    in.push_back(axes[i] >= 0 ? with_axis_in_front(p.in[i]) : p.in[i]);
    fronts.push_back(axis_if(axes[i] >= 0));
  }
  if (mask.has_value()) {
    operands.push_back(mask);
    in.push_back(P());
  }
  const MeshScope scope(p.mesh);
  const Closed body = batched_body("shard_map", *p.body, part_types(p.mesh, in, types_of(operands)),
                                   fronts, size, mask.has_value());
  for (const P& spec : p.out) out.push_back(with_axis_in_front(spec));
  return batched_in_front(bind_map(p.mesh, body, std::move(in), std::move(out), operands));
}

ParamsPtr shard_map_with_programs(const Params* params, std::span<const ProgramPtr> programs) {
  ShardMapParams p = as<ShardMapParams>(*params);
  p.body = with_parts(programs[0], p.mesh, p.in);
  return make_params(std::move(p));
}

// --- lowering ---

/// Writes a device's part of `x`: XLA cuts it so, and leaves the part as it is.
Ssa to_part(Lowering& out, Ssa x, const Type& whole, const Sharding& sharding) {
  x = out.with_sharding(x, whole, hlo_text(sharding, whole.rank(), out.devices()));
  return out.sharding_marker("SPMDFullToShardShape", x, whole, sharding.part_type(whole),
                             "{manual}");
}

/// Computes where a device is along these axes: XLA's partitioner knows no partition_id, so every
/// device takes its part of a list of indices.
Ssa index_along(Lowering& out, const Mesh& mesh, const std::vector<std::string>& axes) {
  const Type part{DType::s32, {1}}, scalar{DType::s32, {}};
  const Type all{DType::s32, {CollectiveParams{mesh, axes}.count()}};
  const Ssa list = out.op("iota", {}, {}, all, "iota_dimension = 0 : i64");
  return out.op("reshape",
                {to_part(out, list, all, {mesh, P(std::vector<std::vector<std::string>>{axes})})},
                {&part}, scalar);
}

std::vector<Ssa> axis_indices(Lowering& out, const Mesh& mesh) {
  std::vector<Ssa> indices;
  for (const MeshAxis& axis : mesh.axes()) indices.push_back(index_along(out, mesh, {axis.name}));
  return indices;
}

/// XLA keeps what a custom call needs in one pool for all devices that run it, and in a loop they
/// meet there all the time. Small bodies with such loops are written once for each device.
bool needs_copy_each(const Program& body, std::size_t devices) {
  constexpr std::size_t most = 400;  // equations in all, for the time that compiling takes
  std::size_t equations = 0;
  bool loops = false;
  any_equation(body, [&](const Equation& e) {
    ++equations;
    const bool over_stores = e.primitive->calls;  // these loops do not count
    loops = loops || (e.primitive->loops() && !over_stores && has_site(e));
    return false;
  });
  return loops && !has_collective(body) && equations * devices <= most;
}

/// Writes one device's part of the operands, the body on them, and its results as parts of the
/// whole. XLA does not partition what stands between: it is marked {manual}.
std::vector<Ssa> on_parts(Lowering& out, const ShardMapParams& p, const Types& whole,
                          std::span<const Ssa> x, const Types& results) {
  std::vector<Ssa> parts, y;
  for (std::size_t i = 0; i < x.size(); ++i)
    parts.push_back(to_part(out, x[i], whole[i], {p.mesh, p.in[i]}));
  std::vector<Ssa> indices;  // for place_along
  if (uses(*p.body, axis_index_p) || uses(*p.body, gather_to_p))
    indices = axis_indices(out, p.mesh);
  const Lowering::MeshRegion region(out, p.mesh, std::move(indices));
  const auto body = [&](std::size_t) { return out.inlined(*p.body, parts); };
  const std::size_t devices = out.devices().size();
  if (needs_copy_each(*p.body, devices))
    y = write_case(out, index_along(out, p.mesh, all_axes(p.mesh)), devices, p.body->output_types(),
                   effect_of(*p.body) == Effect::ordered, body);
  else
    y = body(0);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Type& part = p.body->type(p.body->outputs[i]);
    const Ssa manual = out.sharding_marker("Sharding", y[i], part, part, "{manual}");
    y[i] = out.sharding_marker("SPMDShardToFullShape", manual, part, results[i],
                               hlo_text({p.mesh, p.out[i]}, part.rank(), out.devices()));
  }
  return y;
}

void shard_map_lower(Lowering& out, const Equation& e) {
  const auto& p = as<ShardMapParams>(*e.params);
  refuse_one_order(*p.body);
  check(!out.mesh(), "shard_map inside shard_map: a device's part cannot be cut again");
  const std::vector<Ssa> x = out.operands(e);
  if (!out.partitioned()) {
    const Lowering::MeshRegion region(out, p.mesh, {});
    return out.define_all(e, out.inlined(*p.body, x));
  }
  refuse_different_ways(*p.body, p.mesh, p.in);
  Types whole, results;
  for (std::size_t i = 0; i < x.size(); ++i) whole.push_back(out.operand_type(e, i));
  for (int i = 0; i < e.results; ++i) results.push_back(out.result_type(e, i));
  // Apart, as a function: XLA makes one of a function's equal constants, and one that both the
  // devices' part and what is around it read would end the process: "Check failed: !IsManual()".
  const bool ordered = effect_of(*p.body) == Effect::ordered;
  out.define_all(
      e, out.apart({"shard_map", whole, results, ordered}, x,
                   [&](std::span<const Ssa> in) { return on_parts(out, p, whole, in, results); }));
}

Types constrain_type(const Params* params, TypeSpan operands) {
  as<ConstrainParams>(*params).sharding.part_type(operands[0]);
  return {operands[0]};
}
Batched constrain_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                        const Tensor&) {
  const Sharding& s = op.as<ConstrainParams>().sharding;
  ConstrainParams p{{s.mesh(), with_axis_in_front(s.spec())}};
  return {{bind1(op.primitive, make_params(std::move(p)), {batch_front(x[0], axes[0], size)})},
          {0}};
}
void constrain_lower(Lowering& out, const Equation& e) {
  const Type& type = out.operand_type(e, 0);
  const Ssa x = out.operand(e, 0);
  const Sharding& s = as<ConstrainParams>(*e.params).sharding;
  check(!out.mesh(), "device_put of a part inside shard_map: a device's part cannot be spread");
  out.define(
      e, 0,
      out.partitioned() ? out.with_sharding(x, type, hlo_text(s, type.rank(), out.devices())) : x);
}

}  // namespace

constexpr Primitive shard_map_p{.name = "shard_map",
                                .type = shard_map_type,
                                .jvp = shard_map_jvp,
                                .transpose = shard_map_transpose,
                                .linear = Linear::jointly,
                                .split = shard_map_split,
                                .with_programs = shard_map_with_programs,
                                .control = ControlFlow::parts,
                                .batch = shard_map_batch,
                                .lower = shard_map_lower};

constexpr Primitive constrain_p{.name = "constrain_sharding",
                                .type = constrain_type,
                                .transpose = self_transpose,
                                .linear = Linear::jointly,
                                .batch = constrain_batch,
                                .lower = constrain_lower};

const Mesh* current_mesh() { return mesh_in_trace; }
MeshScope::MeshScope(const Mesh& mesh) : Scoped(mesh_in_trace, &mesh) {}

bool uses(const Program& program, const Primitive& primitive) {
  return any_equation(program, [&](const Equation& e) { return e.primitive == &primitive; });
}

std::vector<Mesh> meshes_of(const Program& program) {
  std::vector<Mesh> out;
  any_equation(program, [&](const Equation& e) {
    if (e.primitive == &shard_map_p) out.push_back(as<ShardMapParams>(*e.params).mesh);
    if (e.primitive == &constrain_p) out.push_back(as<ConstrainParams>(*e.params).sharding.mesh());
    return false;
  });
  return out;
}

const Sharding& constraint_of(const Equation& equation) {
  return as<ConstrainParams>(*equation.params).sharding;
}

Tensor constrained(const Tensor& x, const Sharding& sharding) {
  check(!current_mesh(),
        "device_put: inside shard_map each device has its part, which cannot be spread");
  return bind1(constrain_p, make_params(ConstrainParams{sharding}), {x});
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

detail::Tensors detail::shard_map(const TensorFunction& f, const ShardMapCall& call,
                                  const Tensors& x, const Place& place) {
  PlaceScope at(place);
  check(!current_mesh(), "shard_map inside shard_map: a device's part cannot be cut again");
  const std::vector<P>& in = call.in;
  Types parts;
  for (std::size_t i = 0; i < x.size(); ++i) {
    check(x[i].has_value(),
          "shard_map: an argument is an empty Tensor, one that was never given a value");
    parts.push_back(Sharding(call.mesh, in[i]).part_type(x[i].type()));
  }
  Closed body;
  {
    const MeshScope scope(call.mesh);
    body = trace_user_inner("shard_map", parts, f);
  }
  std::vector<P> out = call.out();
  for (std::size_t i = 0; i < out.size(); ++i) {  // both throw for what cuts no such result
    Sharding(call.mesh, out[i]);
    whole_type(call.mesh, out[i], body.program->type(body.program->outputs[i]));
  }
  std::vector<P> with_captures(body.captures.size());
  with_captures.insert(with_captures.end(), in.begin(), in.end());
  body.program = with_parts(body.program, call.mesh, with_captures);
  return bind_map(call.mesh, body, in, std::move(out), x);
}

/// Returns a mesh with a device for each element of the first axes: those asked for, or the first.
static Mesh pmap_mesh(const PmapOptions& options, const Tensors& x) {
  check(!x.empty(),
        "pmap: the function has no arguments, so nothing says on how many devices it runs");
  for (const Tensor& t : x) {
    check(t.has_value() && t.rank() > 0,
          "pmap: an argument is {}; every leaf needs a first axis, one element of which each "
          "device gets",
          t.has_value() ? to_string(t.type()) : "an empty Tensor");
    check(t.dims()[0] == x[0].dims()[0],
          "pmap: the first axes have {} and {} elements; they must be equal", x[0].dims()[0],
          t.dims()[0]);
  }
  const std::int64_t size = x[0].dims()[0];
  const std::vector<MeshAxis> axes{{options.axis_name, size}};
  if (options.devices.empty()) return Mesh(axes);
  check(std::ssize(options.devices) == size, "pmap: the first axis has {} elements for {} devices",
        size, options.devices.size());
  return Mesh(axes, options.devices);
}

// A shard_map along one axis, whose function is given the only element of its part's first axis.
detail::Tensors detail::pmap(const TensorFunction& f, const PmapOptions& options, const Tensors& x,
                             const Place& place) {
  PlaceScope at(place);
  const Mesh mesh = pmap_mesh(options, x);
  const P each(options.axis_name);
  std::size_t results = 0;
  const auto on_element = [&](TensorSpan parts) {
    Tensors elements;
    for (const Tensor& t : parts) elements.push_back(squeeze(t, {0}));
    Tensors y = f(elements);
    for (Tensor& t : y) t = expand_dims(t, 0);
    results = y.size();
    return y;
  };
  // How many results there are is known once the function was traced, which is when it is asked.
  const auto out = [&] { return std::vector<P>(results, each); };
  return shard_map(on_element, {mesh, std::vector<P>(x.size(), each), out}, x, place);
}

}  // namespace postern
