// Which indices of which whole a value inside shard_map holds, followed from the function's
// arguments as far as it can be told, for the calls and taps that show it (CallInfo::part).
#include <algorithm>
#include <set>

#include "analysis/follow.h"
#include "core/site_spec.h"
#include "ops/family.h"
#include "ops/shape.h"
#include "shard/shard_map.h"

namespace postern::internal {

namespace {

/// How a value is cut out of its whole: by axis of the whole, the mesh axes that cut it. The first
/// `outer` of them, along which each part is one index wide, are not axes of the value.
struct Partition {
  std::vector<std::vector<std::string>> axes;
  std::size_t outer = 0;
  bool operator==(const Partition&) const = default;

  bool is_cut() const {
    return std::ranges::any_of(axes, [](const auto& names) { return !names.empty(); });
  }
};
using MaybePartition = std::optional<Partition>;  // none: it cannot be told
using Partitions = std::vector<MaybePartition>;

Partition unpartitioned(const Type& type) {
  return {std::vector<std::vector<std::string>>(type.dims.size()), 0};
}
Partition partition_of(const P& spec, const Type& type) {
  Partition out = unpartitioned(type);
  std::ranges::copy(spec.parts(), out.axes.begin());
  return out;
}

class ShardingPropagation {
 public:
  explicit ShardingPropagation(const Mesh& mesh) : mesh_(mesh) {}

  /// Returns the partitions of the outputs, and has the program's sites say those of their
  /// operands.
  Partitions follow(ProgramPtr& program, const Partitions& inputs) const {
    Program to = *program;
    auto next = to.equations.begin();
    Partitions outputs =
        internal::follow(*program, inputs, [&](const Equation&, const Partitions& operands) {
          return of_equation(*next++, to, operands);
        });
    program = std::make_shared<const Program>(std::move(to));
    return outputs;
  }

  using Value = MaybePartition;
  Partitions into(ProgramPtr program, const Partitions& inputs) const {
    return follow(program, inputs);
  }
  static bool join(const Equation&, std::size_t, MaybePartition& into,
                   const MaybePartition& other) {
    if (!into || into == other) return false;
    into = std::nullopt;
    return true;
  }
  static MaybePartition number() { return Partition(); }
  static MaybePartition slice(MaybePartition cut, bool offloaded) {
    if (!cut || offloaded) return {};  // a handle says nothing of what it is for
    const auto first = nth(cut->axes, cut->outer);
    if (!first->empty()) return {};  // a scan's steps go through a part of them
    cut->axes.erase(first);
    return cut;
  }
  static MaybePartition stacked(MaybePartition cut, bool offloaded) {
    if (!cut || offloaded) return {};
    cut->axes.insert(nth(cut->axes, cut->outer), std::vector<std::string>());
    return cut;
  }

 private:
  const Mesh& mesh_;

  Partitions of_equation(Equation& e, const Program& program, const Partitions& operands) const {
    Types in, out;
    for (const ValueId v : e.operands) in.push_back(program.type(v));
    for (int r = 0; r < e.results; ++r) out.push_back(program.type(e.first + r));
    const Partitions unknown(out.size());
    if (e.primitive->site) return of_site(e, in, operands);
    if (e.params && !programs_of(*e.params).empty()) return of_programs(e, operands);
    if (is_collective(e) || e.primitive == &axis_index_p) return unknown;
    if (std::ranges::all_of(operands, [](const MaybePartition& x) { return x && !x->is_cut(); })) {
      Partitions whole;
      for (const Type& t : out) whole.push_back(unpartitioned(t));
      return whole;
    }
    if (e.primitive->batch == elementwise_batch)
      return Partitions(out.size(), of_elements(in, operands, out[0]));
    if (e.primitive == &reshape_p) return {of_reshape(in[0], operands[0], out[0])};
    const MaybePartition result = of_types(e, in, operands);
    if (out.size() == 1) return Partitions{result};
    return unknown;
  }

  /// Has the site say its mesh, and how its first operand is cut on it, unless it does already.
  Partitions of_site(Equation& e, const Types& in, const Partitions& operands) const {
    SiteSpec site = *as<SiteParams>(*e.params).site;
    SiteShard& s = site.shard;
    const bool without_mesh = !s.mesh;  // written into the body of a shard_map that was there
    if (without_mesh) s.mesh = std::make_shared<const Mesh>(mesh_);
    const bool tells = !s.spec && !operands.empty() && operands[0] && operands[0]->is_cut();
    if (tells) {
      const Partition& cut = *operands[0];
      Dims dims(cut.outer, 1);  // of the whole
      dims.insert(dims.end(), in[0].dims.begin(), in[0].dims.end());
      for (std::size_t i = 0; i < dims.size(); ++i)
        for (const std::string& name : cut.axes[i]) dims[i] *= mesh_.size(name);
      s.spec = P(cut.axes);
      s.global_dims = std::move(dims);
    }
    if (without_mesh || tells)
      e.params = make_params(SiteParams{std::make_shared<const SiteSpec>(site)});
    if (site.is_tap()) return head(operands, at(e.results));
    return Partitions(at(e.results));
  }

  /// Of an elementwise operation: the result lies as the operands that are cut, if these agree. All
  /// others are spread over them, or are what the devices agree on.
  static MaybePartition of_elements(const Types& in, const Partitions& operands, const Type& out) {
    MaybePartition found;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!operands[i] || !operands[i]->is_cut() || in[i].dims != out.dims) continue;
      if (found && *found != *operands[i]) return {};
      found = operands[i];
    }
    return found;
  }

  /// Follows pmap's axis of extent 1 in front. Where it goes it still cuts the whole, as an outer
  /// axis; where one comes, that is the innermost outer axis, or new and not cut.
  static MaybePartition of_reshape(const Type& in, MaybePartition cut, const Type& out) {
    const auto rest = [](const Dims& dims) { return std::span(dims).subspan(1); };
    if (!cut) return {};
    if (!in.dims.empty() && in.dims[0] == 1 && std::ranges::equal(rest(in.dims), out.dims)) {
      ++cut->outer;
      return cut;
    }
    if (out.dims.empty() || out.dims[0] != 1 || !std::ranges::equal(rest(out.dims), in.dims))
      return {};
    if (cut->outer > 0)
      --cut->outer;
    else
      cut->axes.insert(cut->axes.begin(), std::vector<std::string>());
    return cut;
  }

  /// Returns the result's type for twice the parts along a mesh axis; "": for those that there are.
  static Type result_with_twice(const std::string& mesh_axis, const Equation& e, Types in,
                                const Partitions& operands) {
    for (std::size_t i = 0; i < in.size(); ++i)
      for (std::size_t d = 0; d < in[i].dims.size(); ++d)
        if (const auto& names = operands[i]->axes[operands[i]->outer + d];
            std::ranges::find(names, mesh_axis) != names.end())
          in[i].dims[d] *= 2;
    std::vector<const Type*> pointers;
    for (const Type& t : in) pointers.push_back(&t);
    return e.primitive->type(e.params.get(), {pointers.data(), pointers.size()})[0];
  }

  /// Asks the type rule what the operation does to axes: with twice the parts along a mesh axis,
  /// the axis of the result that grows is cut by it. None or several grow where devices sum up
  /// alone, or in a block on the diagonal: of such results nothing can be told.
  MaybePartition of_types(const Equation& e, const Types& in, const Partitions& operands) const {
    if (!e.primitive->keeps_axes) return {};
    if (!std::ranges::all_of(operands, &MaybePartition::has_value)) return {};
    const auto has_outer = [](const MaybePartition& operand) { return operand->outer > 0; };
    const auto with_outer = std::ranges::find_if(operands, has_outer);
    if (std::ranges::count_if(operands, has_outer) > 1) return {};
    std::set<std::vector<std::string>> cuts;  // the mesh axes that cut some axis of an operand
    for (const MaybePartition& operand : operands)
      cuts.insert(nth(operand->axes, operand->outer), operand->axes.end());
    cuts.erase(std::vector<std::string>());
    try {
      const Type part = result_with_twice("", e, in, operands);
      Partition out = unpartitioned(part);
      for (const std::vector<std::string>& names : cuts) {
        const Type doubled = result_with_twice(names[0], e, in, operands);
        std::size_t grown = 0;
        for (std::size_t d = 0; d < part.dims.size(); ++d)
          if (doubled.dims[d] != part.dims[d]) {
            out.axes[d] = names;
            ++grown;
          }
        if (grown != 1) return {};
      }
      // Outer axes, of which one operand alone has any, stay in front.
      if (with_outer == operands.end()) return out;
      const auto& outer = (*with_outer)->axes;
      out.outer = (*with_outer)->outer;
      out.axes.insert(out.axes.begin(), outer.begin(), nth(outer, out.outer));
      return out;
    } catch (const Error&) {
      return {};  // the wholes do not fit
    }
  }

  Partitions of_programs(Equation& e, const Partitions& operands) const {
    std::vector<ProgramPtr> programs = programs_of(*e.params);
    Partitions out(at(e.results));
    if (e.primitive->transparent) {
      out = follow(programs[0], operands);
    } else if (branches_or_loops(e)) {
      Flow<MaybePartition> flow = through(*this, e, operands);
      out = std::move(flow.results);
      Partitions given;
      for (std::size_t i = 0; i < programs.size(); ++i) given = follow(programs[i], flow.inputs[i]);
      std::copy_n(given.begin(), flow.carries, out.begin());  // as the last step cuts it
    }
    if (has_site(e) && e.primitive->with_programs)
      e.params = e.primitive->with_programs(e.params.get(), programs);
    return out;
  }
};

}  // namespace

ProgramPtr with_parts(const ProgramPtr& body, const Mesh& mesh, const std::vector<P>& in) {
  if (!has_site(*body)) return body;
  Partitions inputs;
  for (std::size_t i = 0; i < in.size(); ++i)
    inputs.push_back(partition_of(in[i], body->type(body->inputs[i])));
  ProgramPtr out = body;
  ShardingPropagation(mesh).follow(out, inputs);
  return out;
}

}  // namespace postern::internal
