// Cutting kernels. XLA's partitioner knows nothing of what a custom call does: it gathers the
// operands, and each device works on the whole. So before XLA sees the program a kernel with a rule
// becomes a shard_map, along the axes by which its operands lie.
//
// How they lie is followed from the program's arguments and from what device_put says in between.
// XLA decides that for itself, and later; so this is a guess, which is right where values go
// straight on, and which is never wrong: XLA brings the operands there, should they lie otherwise.
#include "block/kernel_parts.h"

#include <algorithm>

#include "analysis/follow.h"
#include "block/block.h"
#include "ops/family.h"
#include "ops/moved_axes.h"
#include "ops/shape.h"
#include "shard/shard_map.h"
#include "transform/walk.h"

namespace postern::internal::blocks {

namespace {

using Layouts = std::vector<Layout>;
using Names = std::vector<std::string>;

Layout whole(const Type& type) { return {nullptr, std::vector<Names>(type.dims.size())}; }
Layouts whole(const Types& types) {
  Layouts out;
  for (const Type& t : types) out.push_back(whole(t));
  return out;
}

Layout uncut_if_whole(Layout x) {
  if (std::ranges::all_of(x.axes, [](const Names& n) { return n.empty(); })) x.mesh = nullptr;
  return x;
}

Layout layout_of(const Mesh& mesh, const P& spec, const Type& type) {
  Layout out = whole(type);
  out.mesh = &mesh;
  std::ranges::copy(spec.parts(), out.axes.begin());
  return uncut_if_whole(std::move(out));
}

/// Has `to_axis` cut as another value's axis is, unless something cuts it already, or one of those
/// mesh axes cuts another axis of the value, or the two lie on different meshes.
void take(Layout& to, std::size_t to_axis, const Layout& from, std::size_t from_axis) {
  const Names& names = from.axes[from_axis];
  if (names.empty() || (to.mesh && !(*to.mesh == *from.mesh)) || !to.axes[to_axis].empty()) return;
  for (const Names& used : to.axes)
    if (std::ranges::find_first_of(used, names) != used.end()) return;
  to.mesh = from.mesh;
  to.axes[to_axis] = names;
}

/// Finds where axes of operands are in the results of an operation that says nothing of it, by its
/// type rule: what is given an operand twice as long makes the result twice as long.
class AxisProbe {
 public:
  using Axis = std::pair<std::size_t, std::size_t>;  // of operand or result, axis

  AxisProbe(const Equation& e, const Types& in, const Types& out) : e_(e), in_(in), out_(out) {}

  /// Returns where this one is. Where nothing is found, as sizes may stand in the parameters, it is
  /// taken to stay what it is in results of the same rank and extent.
  std::vector<Axis> of(std::size_t operand, std::size_t axis) const {
    const std::vector<Axis> found = by_type_rule({operand, axis});
    if (!found.empty() || e_.primitive->keeps_axes) return found;
    const Type& type = in_[operand];
    std::vector<Axis> same;
    for (std::size_t r = 0; r < out_.size(); ++r)
      if (out_[r].rank() == type.rank() && out_[r].dims[axis] == type.dims[axis])
        same.push_back({r, axis});
    return same;
  }

 private:
  /// Asks the type rule by the first way to grow that it accepts; empty if it accepts none.
  std::vector<Axis> by_type_rule(Axis asked) const {
    for (const auto& grown : ways_to_grow(asked))
      if (const auto found = where_results_grow(grown)) return *found;
    return {};
  }

  /// Returns which axes to make longer, by turns, until the type rule accepts: this one alone, with
  /// the same axis of all operands of its rank (a + b), with one axis of another operand (dot).
  std::vector<std::vector<Axis>> ways_to_grow(Axis asked) const {
    const auto [operand, axis] = asked;
    std::vector<std::vector<Axis>> ways = {{asked}, {}};
    for (std::size_t i = 0; i < in_.size(); ++i)
      for (std::size_t d = 0; d < in_[i].dims.size(); ++d) {
        if (in_[i].dims[d] != in_[operand].dims[axis]) continue;
        if (d == axis && in_[i].rank() == in_[operand].rank()) ways[1].push_back({i, d});
        if (i != operand) ways.push_back({asked, {i, d}});
      }
    return ways;
  }

  std::optional<std::vector<Axis>> where_results_grow(const std::vector<Axis>& grown) const {
    Types types = in_;
    for (const auto& [i, d] : grown) types[i].dims[d] *= 2;
    std::vector<const Type*> pointers;
    for (const Type& t : types) pointers.push_back(&t);
    try {
      const Types got = e_.primitive->type(e_.params.get(), {pointers.data(), pointers.size()});
      std::vector<Axis> out;
      for (std::size_t r = 0; r < out_.size(); ++r)
        for (std::size_t d = 0; d < out_[r].dims.size(); ++d)
          if (got[r].dims[d] != out_[r].dims[d]) out.push_back({r, d});
      return out;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  const Equation& e_;
  const Types &in_, &out_;
};

/// Returns how a reshaped array lies. A cut axis stays so where the result has an axis with the
/// same product of extents in front of it, as axis 1 of [8,6] in [2,4,6] or [8,2,3].
Layout reshaped(const Layout& x, const Type& from, const Type& to) {
  Layout out = whole(to);
  std::int64_t before = 1;  // the product of the extents in front
  for (std::size_t d = 0; d < from.dims.size(); before *= from.dims[d++]) {
    const std::int64_t parts = piece_count(*x.mesh, x.axes[d]);
    std::int64_t to_before = 1;
    for (std::size_t e = 0; e < to.dims.size(); to_before *= to.dims[e++])
      if (to_before == before && to.dims[e] > 1 && to.dims[e] % parts == 0) take(out, e, x, d);
  }
  return out;
}

bool is_kernel(const Equation& e) {
  return e.primitive == &block_p || e.primitive == &target_p || e.primitive == &effect_target_p;
}

class KernelCutter {
 public:
  explicit KernelCutter(bool rewrites) : rewrites_(rewrites) {}

  /// Returns the outputs' layouts; with `rewrites` the program's kernels are then cut.
  Layouts follow(ProgramPtr& program, const Layouts& inputs) const {
    Program to = *program;
    to.equations.clear();
    Layouts outputs =
        internal::follow(*program, inputs, [&](const Equation& e, const Layouts& operands) {
          return of_equation(to, Equation(e), operands);
        });
    if (rewrites_) program = std::make_shared<const Program>(std::move(to));
    return outputs;
  }

  using Value = Layout;
  Layouts into(ProgramPtr program, const Layouts& inputs) const {
    return KernelCutter(false).follow(program, inputs);
  }
  /// Takes what is cut on one way as cut on all: XLA has a carry so from the beginning.
  static bool join(const Equation&, std::size_t, Layout& into, const Layout& other) {
    if (into.is_cut() || !other.is_cut()) return false;
    into = other;
    return true;
  }
  static Layout number() { return {}; }
  static Layout slice(Layout x, bool) {
    if (x.axes.empty()) return x;
    x.axes.erase(x.axes.begin());
    return uncut_if_whole(std::move(x));
  }
  static Layout stacked(Layout y, bool offloaded) {
    if (offloaded) return Layout();
    y.axes.insert(y.axes.begin(), Names());
    return y;
  }

 private:
  Layouts of_equation(Program& to, Equation e, Layouts operands) const {
    Types in, out;
    for (const ValueId v : e.operands) in.push_back(to.type(v));
    for (int r = 0; r < e.results; ++r) out.push_back(to.type(e.first + r));
    for (std::size_t i = 0; i < in.size(); ++i) operands[i].axes.resize(in[i].dims.size());
    Layouts results;
    if (e.primitive == &block_p && of_block(to, e, in, operands, results)) return results;
    if ((e.primitive == &target_p || e.primitive == &effect_target_p) &&
        of_target(to, e, in, operands, results))
      return results;
    results = of_any(e, in, out, operands);
    for (std::size_t i = 0; i < out.size(); ++i) results[i].axes.resize(out[i].dims.size());
    to.equations.push_back(std::move(e));
    return results;
  }

  /// Follows what is no kernel, or one that nothing cuts.
  Layouts of_any(Equation& e, const Types& in, const Types& out, const Layouts& operands) const {
    if (e.primitive == &shard_map_p) {
      const auto& p = as<ShardMapParams>(*e.params);
      Layouts results;
      for (std::size_t i = 0; i < out.size(); ++i)
        results.push_back(layout_of(p.mesh, p.out[i], out[i]));
      return results;
    }
    if (e.primitive == &constrain_p) {
      const Sharding& s = constraint_of(e);
      return {layout_of(s.mesh(), s.spec(), out[0])};
    }
    if (const SiteSpec* site = site_of(e)) {
      Layouts results = whole(out);
      if (site->is_tap()) std::copy_n(operands.begin(), out.size(), results.begin());
      return results;
    }
    if (e.params && !programs_of(*e.params).empty()) return of_programs(e, in, out, operands);
    return of_operation(e, in, out, operands);
  }

  Layouts of_programs(Equation& e, const Types& in, const Types& out,
                      const Layouts& operands) const {
    std::vector<ProgramPtr> programs = programs_of(*e.params);
    Layouts results = whole(out);
    if (branches_or_loops(e)) {
      const Flow<Layout> flow = through(KernelCutter(false), e, operands);
      results = flow.results;
      for (std::size_t i = 0; i < programs.size() && rewrites_; ++i)
        follow(programs[i], flow.inputs[i]);
    } else if (std::ranges::equal(programs[0]->input_types(), in, alike)) {
      const Layouts given = follow(programs[0], operands);
      if (std::ranges::equal(programs[0]->output_types(), out, alike)) results = given;
    }
    if (rewrites_ && e.primitive->with_programs && any_equation(e, is_kernel))
      e.params = with_other_programs(e, programs);
    return results;
  }

  /// Gives the equation these programs. A block stays what it is with another default.
  static ParamsPtr with_other_programs(const Equation& e, const std::vector<ProgramPtr>& programs) {
    if (e.primitive != &block_p) return e.primitive->with_programs(e.params.get(), programs);
    BlockParams p = as<BlockParams>(*e.params);
    p.body = programs[0];
    return make_params(std::move(p));
  }

  static Layouts of_operation(const Equation& e, const Types& in, const Types& out,
                              const Layouts& operands) {
    Layouts results = whole(out);
    if (is_collective(e)) return results;
    const AxisProbe probe(e, in, out);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const Layout& x = operands[i];
      if (!x.is_cut()) continue;
      if (e.primitive == &reshape_p) {
        results[0] = reshaped(x, in[0], out[0]);
        continue;
      }
      const auto moved = moved_axes(e, in[i].dims.size());  // none: the operation does not say
      const bool elementwise = moved && e.primitive->batch == elementwise_batch;
      for (std::size_t d = 0; d < x.axes.size(); ++d) {
        if (elementwise) {
          for (std::size_t r = 0; r < out.size() && in[i].dims == out[r].dims; ++r)
            take(results[r], d, x, d);
        } else if (moved) {
          const auto to = size_of((*moved)[d]);
          if (in[i].dims[d] == out[0].dims[to]) take(results[0], to, x, d);
        } else if (!x.axes[d].empty()) {
          for (const auto& [r, axis] : probe.of(i, d)) take(results[r], axis, x, d);
        }
      }
    }
    return results;
  }

  // --- kernels ---

  /// Puts a shard_map of `f` in the equation's place, for its first results. Returns their layouts.
  Layouts on_parts(Program& to, const Equation& e, const KernelCut& cut,
                   const TensorFunction& f) const {
    Equation map{.primitive = &shard_map_p,
                 .params = nullptr,  // set below
                 .operands = head(e.operands, cut.in.size()),
                 .first = e.first,
                 .results = static_cast<int>(cut.out.size()),
                 .place = e.place};
    Layouts results;
    for (int i = 0; i < map.results; ++i)
      results.push_back(layout_of(*cut.mesh, cut.out[at(i)], to.type(e.first + i)));
    if (!rewrites_) return results;
    const PlaceScope::Replace here(e.place);
    Types parts;
    for (std::size_t i = 0; i < cut.in.size(); ++i)
      parts.push_back(Sharding(*cut.mesh, cut.in[i]).part_type(to.type(map.operands[i])));
    const MeshScope scope(*cut.mesh);
    const Closed body = trace_inner("kernel", parts, [&](TensorSpan x) {
      Tensors y = f(x);
      for (Tensor& t : y)
        if (!cut.summed.empty()) t = sum_over(*cut.mesh, cut.summed, t);
      return y;
    });
    check(body.captures.empty(), "a kernel uses a tensor from outside of the program");
    map.params = make_params(
        ShardMapParams{*cut.mesh, cut.in, cut.out, with_parts(body.program, *cut.mesh, cut.in)});
    to.equations.push_back(std::move(map));
    return results;
  }

  bool of_target(Program& to, const Equation& e, const Types& in, const Layouts& operands,
                 Layouts& results) const {
    const auto& p = as<TargetParams>(*e.params);
    if (p.target->sharding.empty()) return false;
    const std::string what = fmt::format("ffi_call '{}'", p.target->name);
    const PlaceScope::Replace here(e.place);
    const ShardingRule rule = fitted(what, parse_sharding(what, p.target->sharding), in, p.results);
    const auto cut = cut_of(rule, in, operands);
    if (!cut) return false;
    TargetParams part = p;
    for (std::size_t i = 0; i < part.results.size(); ++i)
      part.results[i] = cut->part(part.results[i], rule.results[i]);
    results = on_parts(to, e, *cut, [&](TensorSpan x) {
      return bind_n(*e.primitive, make_params(TargetParams(part)), x);
    });
    return true;
  }

  /// Returns the factors of all that the block's own results depend on: those of one element, which
  /// are never cut where the override has no rule, and in front of them one for each vmap.
  static ShardingRule factors_of(const BlockParams& p, const Override& o) {
    ShardingRule rule;
    if (const auto own = sharding_of(p, o)) {
      rule = *own;
    } else {
      for (const Type& t : p.operands) rule.operands.emplace_back(t.dims.size());
      for (const Type& t : p.results) rule.results.emplace_back(t.dims.size());
    }
    for (std::size_t l = 0; l < p.levels.size(); ++l) {
      const std::string factor = level_factor(l);
      rule = with_axis_in_front(std::move(rule), factor, p.levels[l].mapped);
      if (p.levels[l].masked) rule.operands.push_back({factor});
    }
    return rule;
  }
  static std::string level_factor(std::size_t level) { return fmt::format("vmap {}", level); }

  /// Returns the block for one part. Its types are of one element, so only the last factors count.
  static BlockParams part_of(const BlockParams& p, const ShardingRule& rule, const KernelCut& cut) {
    BlockParams part = p;
    const auto own = [&](Type& type, const Factors& factors) {
      type = cut.part(type, tail(factors, factors.size() - type.dims.size()));
    };
    for (std::size_t i = 0; i < p.operands.size(); ++i) own(part.operands[i], rule.operands[i]);
    for (std::size_t i = 0; i < p.results.size(); ++i) own(part.results[i], rule.results[i]);
    for (std::size_t l = 0; l < p.levels.size(); ++l)
      part.levels[l].size /= cut.parts(level_factor(l));
    return part;
  }

  /// Has the override make the block's own results on parts, and the default what a derivative has
  /// beside them. False where there is none, or nothing is cut, or it declines parts.
  bool of_block(Program& to, const Equation& e, const Types& in, const Layouts& operands,
                Layouts& results) const {
    const auto& p = as<BlockParams>(*e.params);
    const platforms::Platform* platform = &platforms::current();
    const PlaceScope::Replace here(e.place);
    const OverridePtr o = choose(question(p, platform));
    if (!o) return false;
    const ShardingRule rule = factors_of(p, *o);
    const auto cut = cut_of(rule, head(in, p.leading()), operands);
    if (!cut) return false;
    const BlockParams part = part_of(p, rule, *cut);
    if (choose(question(part, platform)) != o) return false;  // it declines parts
    results = on_parts(to, e, *cut,
                       [&](TensorSpan x) { return internal::apply(*program_of(part, *o), x); });
    const auto own = static_cast<int>(p.results.size());
    if (e.results > own) {
      Program rest = *p.body;
      rest.outputs = tail(rest.outputs, p.results.size());
      const ProgramPtr body = std::make_shared<const Program>(std::move(rest));
      const Equation beside{.primitive = &part_p,
                            .params = make_params(PartParams{body}),
                            .operands = e.operands,
                            .first = e.first + own,
                            .results = e.results - own,
                            .place = e.place};
      for (Layout& y : of_equation(to, beside, operands)) results.push_back(std::move(y));
    }
    return true;
  }

  const bool rewrites_;
};

}  // namespace

ProgramPtr with_kernels_on_parts(const ProgramPtr& program,
                                 const std::vector<std::optional<Sharding>>& inputs) {
  if (!any_equation(*program, is_kernel)) return program;
  Layouts layouts = whole(program->input_types());
  for (std::size_t i = 0; i < layouts.size(); ++i)
    if (inputs[i])
      layouts[i] =
          layout_of(inputs[i]->mesh(), inputs[i]->spec(), program->type(program->inputs[i]));
  ProgramPtr out = program;
  KernelCutter(true).follow(out, layouts);
  return out;
}

}  // namespace postern::internal::blocks
