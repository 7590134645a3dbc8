// shard_map over processes, rewritten for the devices of this one.
//
// A value that processes share out is kept as this process's part, from argument to result, through
// the next shard_map that cuts it alike, elementwise operations, loops and branches. So what a
// derivative puts aside moves nowhere. What needs the whole is refused, but for collect.
#include <postern/shard.h>

#include <algorithm>

#include "analysis/follow.h"
#include "cluster/cluster.h"
#include "core/lists.h"
#include "core/site_spec.h"
#include "ops/moved_axes.h"
#include "ops/shape.h"
#include "shard/collective.h"
#include "shard/expansion.h"
#include "shard/shard_map.h"
#include "transform/simplify.h"

namespace postern::internal {

namespace {

bool over_processes(const Equation& e) {
  if (e.primitive == &shard_map_p) return spans_processes(as<ShardMapParams>(*e.params).mesh);
  return e.primitive == &collect_p ||
         (e.primitive == &constrain_p && spans_processes(constraint_of(e).mesh()));
}

bool any_sharded(std::span<const Placed> values) {
  return std::ranges::any_of(values,
                             [](const Placed& value) { return value.placement.is_sharded(); });
}

std::vector<Placed> unsharded(Tensors&& tensors) {
  std::vector<Placed> out;
  for (Tensor& t : tensors) out.push_back({std::move(t)});
  return out;
}

Tensors tensors_of(std::span<const Placed> values) {
  Tensors out;
  for (const Placed& value : values) out.push_back(value.tensor);
  return out;
}

std::vector<Placed> placed_as(const std::vector<Placement>& placements, TensorSpan x) {
  std::vector<Placed> out;
  for (std::size_t i = 0; i < x.size(); ++i) out.push_back({x[i], placements[i]});
  return out;
}

std::vector<Placement> placements_of(std::span<const Placed> values) {
  std::vector<Placement> out;
  for (const Placed& value : values) out.push_back(value.placement);
  return out;
}

/// "add", or of a site "tap 'loss'".
std::string name_of(const Equation& e) {
  const SiteSpec* const site = site_of(e);
  if (!site) return e.primitive->name;
  return fmt::format("{} '{}'", word_of(site->kind), site->name);
}

/// A site in the body of a shard_map over processes: its mesh is that of this process, and how its
/// operand lies over all processes is kept beside that.
ParamsPtr site_on_process(SiteSpec site, const Split& split) {
  SiteShard& s = site.shard;
  if (s.mesh && s.spec && spans_processes(*s.mesh)) {
    s.over_processes = Sharding(*s.mesh, *s.spec);
    s.process_dims = s.global_dims;
  }
  s.mesh = split.here ? std::make_shared<const Mesh>(*split.here) : nullptr;
  if (!s.over_processes) s.partitioned = std::nullopt;
  s.spec = std::nullopt;
  s.global_dims = {};
  return make_params(SiteParams{std::make_shared<const SiteSpec>(std::move(site))});
}

}  // namespace

std::vector<Placed> Expansion::run(const Program& program,
                                   const std::vector<Placed>& inputs) const {
  return follow(program, inputs, [&](const Equation& e, const std::vector<Placed>& operands) {
    return equation(program, e, operands);
  });
}

std::vector<Placed> Expansion::equation(const Program& program, const Equation& e,
                                        std::span<const Placed> x) const {
  if (e.primitive == &shard_map_p && over_processes(e)) return map(e, x);
  if (e.primitive == &collect_p) return {{global_of(x[0], collect_rank(e))}};
  if (e.primitive == &constrain_p && over_processes(e)) {
    const Sharding& wanted = constraint_of(e);
    const Placement placement(std::make_shared<const Split>(wanted.mesh()), wanted.spec());
    if (x[0].placement.is_sharded() || placement.is_sharded())
      return {{shard_of(x[0], placement), placement}};
    return {x[0]};
  }
  if (split_) {  // in the body of a shard_map over processes
    const bool asks = e.primitive == &axis_index_p || e.primitive == &axis_count_p;
    if (e.primitive->rendezvous_axes || asks)
      return unsharded(collective_over(*split_, e, tensors_of(x)));
    if (const SiteSpec* const site = site_of(e))
      return unsharded(bind_n(*e.primitive, site_on_process(*site, *split_), tensors_of(x)));
  }
  const bool sharded = any_sharded(x);
  std::vector<ProgramPtr> programs;
  if (e.params) programs = programs_of(*e.params);
  const bool rewrites_programs = std::ranges::any_of(programs, [&](const ProgramPtr& p) {
    return split_ || sharded || any_equation(*p, over_processes);
  });
  if (rewrites_programs) return with_programs(e, x);
  if (sharded) return on_shards(program, e, x);
  return unsharded(bind_n(*e.primitive, e.params, tensors_of(x)));
}

/// Computes on this process's shards alone, which can be done where the primitive makes each
/// element of one or puts axes elsewhere. Anything else XLA would have to cut over processes: that
/// is refused.
std::vector<Placed> Expansion::on_shards(const Program& program, const Equation& e,
                                         std::span<const Placed> x) const {
  const auto first =
      std::ranges::find_if(x, [](const auto& value) { return value.placement.is_sharded(); });
  const Type& global = program.type(e.operands[size_of(first - x.begin())]);
  const Placement& placement = first->placement;
  const auto axes = placement.offloaded ? std::nullopt : moved_axes(e, global.dims.size());
  const bool all_alike = std::ranges::all_of(x, [&](const Placed& value) {
    return !value.placement.is_sharded() || value.placement == placement;
  });
  if (!axes || !all_alike || e.results != 1)
    throw_type_error(fmt::format(
        "{}: {}, and XLA on CPUs cuts no program over processes: compute with parts in shard_map, "
        "or give it the whole with collect(x)",
        name_of(e), placement_text(global, placement)));
  std::vector<Names> spec(program.type(e.first).dims.size());
  for (std::size_t i = 0; i < placement.spec.parts().size(); ++i)
    spec[size_of((*axes)[i])] = placement.spec.parts()[i];  // where the primitive puts axis i
  const Placement after(placement.split, P(std::move(spec)));
  Tensors shards;  // operands of other dims, which are spread over these, as they are
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool alike = program.type(e.operands[i]).dims == global.dims;
    shards.push_back(alike ? shard_of(x[i], placement) : x[i].tensor);
  }
  if (e.primitive != &broadcast_p) return {{bind1(*e.primitive, e.params, shards), after}};
  const Type shard = after.shard_type(program.type(e.first));  // the parameters have the whole's
  return {{broadcast_in_dim(shards[0], shard.dims, *axes), after}};
}

Expansion::Inner Expansion::inner(const ProgramPtr& p, const std::vector<Placement>& inputs,
                                  const std::vector<Placement>* wanted) const {
  Types types = p->input_types();
  for (std::size_t i = 0; i < types.size(); ++i) types[i] = inputs[i].shard_type(types[i]);
  Inner out;
  const Closed closed = trace_inner("processes", types, [&](TensorSpan x) {
    std::vector<Placed> y = run(*p, placed_as(inputs, x));
    for (std::size_t i = 0; wanted && i < y.size(); ++i)
      y[i] = {shard_of(y[i], (*wanted)[i]), (*wanted)[i]};
    out.outputs = placements_of(y);
    return tensors_of(y);
  });
  check(closed.captures.empty(), "a program over processes uses a tensor from outside of it");
  Program made = *closed.program;
  made.name = p->name;
  out.program = std::make_shared<const Program>(std::move(made));
  return out;
}

std::vector<Placed> Expansion::with_programs(const Equation& e, std::span<const Placed> x) const {
  check(e.primitive->with_programs != nullptr, "{}: what is over processes cannot be inside of it",
        e.primitive->name);
  if (branches_or_loops(e)) return control_flow(e, x);
  std::vector<ProgramPtr> programs = programs_of(*e.params);
  std::vector<Placement> outputs(at(e.results));
  if (e.primitive->transparent) {  // it means its first program
    Inner made = inner(programs[0], placements_of(x));
    programs[0] = std::move(made.program);
    outputs = std::move(made.outputs);
  } else {
    check(!any_sharded(x), "{}: an operand lies over processes; collect(x) gives it the whole",
          e.primitive->name);
    for (ProgramPtr& p : programs) p = inner(p, std::vector<Placement>(p->inputs.size())).program;
  }
  return rebound(e, programs, x, outputs);
}

std::vector<Placed> Expansion::rebound(const Equation& e, std::span<const ProgramPtr> programs,
                                       std::span<const Placed> x,
                                       const std::vector<Placement>& outputs) const {
  const ParamsPtr params = e.primitive->with_programs(e.params.get(), programs);
  return placed_as(outputs, bind_n(*e.primitive, params, tensors_of(x)));
}

/// Returns how a program's outputs lie where its inputs lie so. `inner` alone knows, and writes the
/// program anew for it; what it has written is kept once the flow stands still.
std::vector<Placement> Expansion::into(const ProgramPtr& p,
                                       const std::vector<Placement>& inputs) const {
  if (split_) return std::vector<Placement>(p->outputs.size());  // nothing is cut over processes
  return inner(p, inputs).outputs;
}

/// Where branches end, or a loop's step: if one is whole and the other cut, the whole can be cut
/// too, without a message.
bool Expansion::join(const Equation&, std::size_t, Placement& into, const Placement& other) {
  if (!other.is_sharded() || into == other) return false;
  if (into.is_sharded())
    throw_type_error(
        fmt::format("a value lies over processes as {} on one way and as {} on another",
                    to_string(into.spec), to_string(other.spec)));
  into = other;
  return true;
}

Placement Expansion::slice(Placement x, bool) {
  if (!x.is_sharded()) return x;
  std::vector<Names> spec = x.spec.parts();
  check(x.offloaded || spec[0].empty(),
        "scan: what it steps through is cut over processes along that axis, by {}; collect(x) "
        "sends everybody the whole",
        to_string(x.spec));
  if (!x.offloaded) spec.erase(spec.begin());
  return {x.split, P(std::move(spec))};
}

Placement Expansion::stacked(Placement y, bool offloaded) {
  if (!y.is_sharded()) return y;
  std::vector<Names> spec = y.spec.parts();
  if (!offloaded) spec.insert(spec.begin(), Names());
  y.spec = P(std::move(spec));
  y.offloaded = offloaded;
  return y;
}

// All branches, and all steps, have operands and results that lie as the flow says where nothing
// changes any more. What chooses a branch, and what a condition gives, every process needs whole.
std::vector<Placed> Expansion::control_flow(const Equation& e, std::span<const Placed> x) const {
  std::vector<Placed> in(x.begin(), x.end());
  if (!e.primitive->loops()) in[0] = {shard_of(x[0], {})};  // refuses a part
  Flow<Placement> flow = through(*this, e, placements_of(in));
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = {shard_of(in[i], flow.operands[i]), flow.operands[i]};
  if (e.primitive->control == ControlFlow::while_loop) flow.outputs[0] = {Placement()};
  std::vector<ProgramPtr> programs = programs_of(*e.params);
  for (std::size_t i = 0; i < programs.size(); ++i)
    programs[i] = inner(programs[i], flow.inputs[i], &flow.outputs[i]).program;
  return rebound(e, programs, in, flow.results);
}

// A shard_map over processes becomes one over the devices of this process, given its parts; where
// the mesh has no axes of devices and names device 0 alone, the body by itself.
std::vector<Placed> Expansion::map(const Equation& e, std::span<const Placed> operands) const {
  check(!split_, "shard_map inside shard_map: a device's part cannot be cut again");
  const auto& p = as<ShardMapParams>(*e.params);
  const auto split = std::make_shared<const Split>(p.mesh);
  const auto here_of = [&](const P& spec) {
    const auto here = on_each_process({p.mesh, spec});
    return here ? here->spec() : P();
  };
  Tensors parts;
  std::vector<P> in, out;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    parts.push_back(shard_of(operands[i], Placement(split, p.in[i])));
    in.push_back(here_of(p.in[i]));
  }
  for (const P& spec : p.out) out.push_back(here_of(spec));
  const Expansion inside(split);
  const auto body = [&](TensorSpan x) {
    return tensors_of(inside.run(*p.body, unsharded(Tensors(x.begin(), x.end()))));
  };
  const Tensors y =
      split->here ? detail::shard_map(body, {*split->here, in, [&] { return out; }}, parts, e.place)
                  : body(parts);
  std::vector<Placed> results;
  for (std::size_t i = 0; i < y.size(); ++i) results.push_back({y[i], Placement(split, p.out[i])});
  return results;
}

namespace {

/// Calls the host where all processes wait for each other at the end of the run, on every device
/// that took part.
void end_together(const Mesh& mesh) {
  const clusters::Collective end{.grid = {clusters::Cluster::get().size()}, .along = {0}};
  const PlaceScope::Replace nowhere{Place()};  // the same on all, whoever had it lowered
  const auto here = [&](TensorSpan) {
    return process_access.call(end, "the end of the run", {}, {});
  };
  const Split split(mesh);
  if (split.here)
    detail::shard_map(here, {*split.here, {}, [] { return std::vector<P>(); }}, {}, Place());
  else
    here({});
}

/// The mesh over processes in which most devices of each take part; null for none.
const Mesh* mesh_of_most(const std::vector<Mesh>& meshes) {
  const Mesh* found = nullptr;
  for (const Mesh& mesh : meshes)
    if (spans_processes(mesh) && (!found || mesh.devices().size() > found->devices().size()))
      found = &mesh;
  return found;
}

/// Devices of processes meet by their places in a mesh, one collective after another.
void check_one_order(const std::vector<Mesh>& meshes) {
  const Mesh* const first = mesh_of_most(meshes);
  for (const Mesh& m : meshes)
    check(!spans_processes(m) || m.devices().size() < 2 || m.devices() == first->devices(),
          "the meshes over processes of a program must name their devices in one order: {} has "
          "another one than {}",
          to_string(m), to_string(*first));
}

bool is_global(const std::optional<Sharding>& s) { return s && spans_processes(s->mesh()); }

Placement placement_of(const Sharding& s) {
  return {std::make_shared<const Split>(s.mesh()), s.spec()};
}

/// Has inputs that lie over processes be given as this process's parts, and `types` be those of the
/// parts. Returns how each input lies.
std::vector<Placement> place_inputs(Expanded& expanded, Types& types) {
  std::vector<Placement> placements(expanded.inputs.size());
  for (std::size_t i = 0; i < placements.size(); ++i) {
    if (!is_global(expanded.inputs[i])) continue;
    const Sharding global = *expanded.inputs[i];
    placements[i] = placement_of(global);
    types[i] = placements[i].shard_type(types[i]);
    expanded.inputs[i] = on_each_process(global);
    expanded.global_inputs[i] = global;
  }
  return placements;
}

/// Places output i as it is wanted, and notes how it lies; sets `sends` if that takes messages.
Placed place_output(Expanded& expanded, std::size_t i, Placed y, bool& sends) {
  std::optional<Sharding>& global = expanded.global_outputs[i];
  if (is_global(expanded.outputs[i])) {
    global = expanded.outputs[i];
    const Placement placement = placement_of(*global);
    const bool moves = y.placement.is_sharded() && y.placement != placement;
    sends = sends || moves;
    y = {shard_of(moves ? Placed{global_of(y)} : y, placement), placement};
  } else if (y.placement.is_sharded()) {
    global = y.placement.sharding();
  }
  if (global) expanded.outputs[i] = on_each_process(*global);
  return y;
}

/// Whether processes may meet in it: it is then to end on all of them at once.
bool may_communicate(const Program& program) {
  return any_equation(program, [](const Equation& e) {
    return e.primitive == &collect_p || (e.primitive == &shard_map_p && over_processes(e));
  });
}

}  // namespace

// The program is traced anew, given the parts of inputs that lie over processes; what is known of
// its outputs then is how they lie.
void expand_processes(Expanded& expanded) {
  const ProgramPtr program = expanded.program;
  expanded.inputs.resize(program->inputs.size());
  expanded.outputs.resize(program->outputs.size());
  expanded.global_inputs.resize(expanded.inputs.size());
  expanded.global_outputs.resize(expanded.outputs.size());
  std::vector<Mesh> meshes = meshes_of(*program);
  for (const auto* list : {&expanded.inputs, &expanded.outputs})
    for (const auto& s : *list)
      if (is_global(s)) meshes.push_back(s->mesh());
  if (!std::ranges::any_of(meshes, spans_processes)) return;
  check_one_order(meshes);
  const ProcessCountScope process_count;
  Types types = program->input_types();
  const std::vector<Placement> placements = place_inputs(expanded, types);
  bool communicates = may_communicate(*program);
  const Closed closed = trace_program("processes", types, [&](TensorSpan x) {
    std::vector<Placed> y = Expansion().run(*program, placed_as(placements, x));
    for (std::size_t i = 0; i < y.size(); ++i)
      y[i] = place_output(expanded, i, std::move(y[i]), communicates);
    if (const Mesh* const mesh = mesh_of_most(meshes); communicates && mesh) end_together(*mesh);
    return tensors_of(y);
  });
  check(closed.captures.empty(), "a program over processes uses a tensor from outside of it");
  Program named = *closed.program;
  named.name = program->name;
  expanded.program = simplify(named);
  // In a cluster of one nothing is cut, so that no text shows how more would.
  expanded.any_number = !process_count.depends() && clusters::Cluster::get().size() > 1;
  expanded.any_global = std::ranges::any_of(expanded.global_inputs, is_global) ||
                        std::ranges::any_of(expanded.global_outputs, is_global);
}

}  // namespace postern::internal
