// Which indices of which whole a value inside shard_map holds, followed from the function's
// arguments as far as it can be told, for the calls and taps that show it (CallInfo::part).
#include <algorithm>
#include <set>

#include "control/control.h"
#include "core/site_spec.h"
#include "ops/elementwise.h"
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

struct Followed {
  ProgramPtr program;  // its sites say how their operands lie
  Partitions outputs;
};

class Follower {
 public:
  explicit Follower(const Mesh& mesh) : mesh_(mesh) {}

  Followed follow(const ProgramPtr& from, Partitions inputs) const {
    Program to = *from;
    Partitions cuts(from->types.size());
    for (std::size_t i = 0; i < inputs.size(); ++i)
      cuts[at(from->inputs[i])] = std::move(inputs[i]);
    for (Equation& e : to.equations) {
      Partitions operands;
      for (const ValueId v : e.operands) operands.push_back(cuts[at(v)]);
      Partitions results = of_equation(e, to, operands);
      for (std::size_t r = 0; r < results.size(); ++r)
        cuts[at(e.first) + r] = std::move(results[r]);
    }
    Partitions outputs;
    for (const ValueId v : from->outputs) outputs.push_back(cuts[at(v)]);
    return {std::make_shared<const Program>(std::move(to)), std::move(outputs)};
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
    if (std::ranges::all_of(operands, [](const MaybePartition& l) { return l && !l->is_cut(); })) {
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

  Partitions of_site(Equation& e, const Types& in, const Partitions& operands) const {
    SiteSpec site = *as<SiteParams>(*e.params).site;
    if (!site.mesh) {  // written into the body of a shard_map that was there
      site.mesh = std::make_shared<const Mesh>(mesh_);
      e.params = make_params(SiteParams{std::make_shared<const SiteSpec>(site)});
    }
    if (!site.cut && !operands.empty() && operands[0] && operands[0]->is_cut()) {
      const Partition& cut = *operands[0];
      Dims dims(cut.outer, 1);
      dims.insert(dims.end(), in[0].dims.begin(), in[0].dims.end());
      for (std::size_t i = 0; i < dims.size(); ++i)
        for (const std::string& name : cut.axes[i]) dims[i] *= mesh_.size(name);
      site.cut = P(cut.axes);
      site.whole = std::move(dims);
      e.params = make_params(SiteParams{std::make_shared<const SiteSpec>(site)});
    }
    Partitions out(operands.begin(), operands.begin() + (site.is_tap() ? e.results : 0));
    out.resize(at(e.results));
    return out;
  }

  /// The same place of the only whole that is cut: others are spread over it, or what the devices
  /// agree on.
  static MaybePartition of_elements(const Types& in, const Partitions& operands, const Type& out) {
    MaybePartition found;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!operands[i] || !operands[i]->is_cut() || in[i].dims != out.dims) continue;
      if (found && *found != *operands[i]) return {};
      found = operands[i];
    }
    return found;
  }

  /// An axis of extent 1 in front comes or goes: pmap's.
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

  /// What an operation does to axes its type rule says: an axis of a result that grows with the
  /// parts along a mesh axis is cut by it.
  MaybePartition of_types(const Equation& e, const Types& in, const Partitions& operands) const {
    if (!e.primitive->keeps_axes) return {};
    if (!std::ranges::all_of(operands, &MaybePartition::has_value)) return {};
    const auto with_outer =
        std::ranges::find_if(operands, [](const MaybePartition& l) { return l->outer > 0; });
    if (std::ranges::count_if(operands, [](const MaybePartition& l) { return l->outer > 0; }) > 1)
      return {};
    const auto types_with = [&](const std::string& axis) {
      Types whole = in;
      for (std::size_t i = 0; i < in.size(); ++i)
        for (std::size_t d = 0; d < in[i].dims.size(); ++d)
          if (const auto& names = operands[i]->axes[operands[i]->outer + d];
              std::ranges::find(names, axis) != names.end())
            whole[i].dims[d] *= 2;
      std::vector<const Type*> pointers;
      for (const Type& t : whole) pointers.push_back(&t);
      return e.primitive->type(e.params.get(), {pointers.data(), pointers.size()})[0];
    };
    std::set<std::vector<std::string>> lists;
    for (const MaybePartition& l : operands)
      lists.insert(l->axes.begin() + static_cast<std::ptrdiff_t>(l->outer), l->axes.end());
    lists.erase(std::vector<std::string>());
    try {
      const Type part = types_with("");
      Partition out = unpartitioned(part);
      for (const std::vector<std::string>& names : lists) {
        const Type whole = types_with(names[0]);
        std::size_t grown = 0;
        for (std::size_t d = 0; d < part.dims.size(); ++d)
          if (whole.dims[d] != part.dims[d]) {
            out.axes[d] = names;
            ++grown;
          }
        if (grown != 1) return {};  // summed up on each device alone, or a block on the diagonal
      }
      if (with_outer == operands.end()) return out;
      const auto& outer = (*with_outer)->axes;
      out.outer = (*with_outer)->outer;
      out.axes.insert(out.axes.begin(), outer.begin(),
                      outer.begin() + static_cast<std::ptrdiff_t>(out.outer));
      return out;
    } catch (const Error&) {
      return {};  // the wholes do not fit
    }
  }

  Partitions of_programs(Equation& e, const Partitions& operands) const {
    std::vector<ProgramPtr> programs = programs_of(*e.params);
    Partitions out(at(e.results));
    const ControlFlow control = e.primitive->control;
    if (e.primitive->transparent)
      out = follow_into(programs[0], operands);
    else if (control == ControlFlow::branches)
      out = of_cond(programs, operands);
    else if (control == ControlFlow::while_loop)
      out = of_while(as<WhileParams>(*e.params), programs, operands);
    else if (control == ControlFlow::scan)
      out = of_scan(as<ScanParams>(*e.params), programs, operands);
    if (has_site(e) && e.primitive->with_programs)
      e.params = e.primitive->with_programs(e.params.get(), programs);
    return out;
  }

  Partitions follow_into(ProgramPtr& program, Partitions inputs) const {
    Followed f = follow(program, std::move(inputs));
    program = std::move(f.program);
    return std::move(f.outputs);
  }

  /// Where a step cuts a leaf of the carry otherwise its cut is not known; until no step does.
  void settle(const ProgramPtr& body, Partitions& inputs, std::size_t first,
              std::size_t count) const {
    for (bool changed = true; changed;) {
      const Partitions next = follow(body, inputs).outputs;
      changed = false;
      for (std::size_t i = 0; i < count; ++i)
        if (inputs[first + i] && inputs[first + i] != next[i]) {
          inputs[first + i] = std::nullopt;
          changed = true;
        }
    }
  }

  Partitions of_cond(std::vector<ProgramPtr>& branches, const Partitions& operands) const {
    Partitions out;
    for (std::size_t b = 0; b < branches.size(); ++b) {
      Partitions of_branch =
          follow_into(branches[b], Partitions(operands.begin() + 1, operands.end()));
      if (b == 0) out = of_branch;
      for (std::size_t i = 0; i < out.size(); ++i)
        if (out[i] != of_branch[i]) out[i] = std::nullopt;
    }
    return out;
  }

  Partitions of_while(const WhileParams& p, std::vector<ProgramPtr>& programs,
                      const Partitions& operands) const {
    const auto begin = operands.begin(),
               body = begin + static_cast<std::ptrdiff_t>(p.condition_constants);
    Partitions in(body, operands.end());
    settle(p.body, in, p.body_constants, p.carries());
    Partitions of_condition(begin, body);
    of_condition.insert(of_condition.end(),
                        in.begin() + static_cast<std::ptrdiff_t>(p.body_constants), in.end());
    follow_into(programs[0], std::move(of_condition));
    Partitions out = follow_into(programs[1], std::move(in));
    if (p.taped) {  // the number of steps, and tickets
      out.resize(p.carries());
      out.resize(p.carries() + 1 + p.ys());
    }
    return out;
  }

  Partitions of_scan(const ScanParams& p, std::vector<ProgramPtr>& programs,
                     const Partitions& operands) const {
    const auto constants = operands.begin() + static_cast<std::ptrdiff_t>(p.first_operand());
    Partitions in(constants, constants + static_cast<std::ptrdiff_t>(p.constants));
    if (p.counted) in.push_back(Partition());
    const std::size_t first_carry = p.first_operand() + p.constants,
                      first_x = first_carry + p.carries;
    for (std::size_t i = first_carry; i < operands.size(); ++i) {
      MaybePartition cut = operands[i];
      if (i >= first_x && p.taped) cut = std::nullopt;  // a ticket says nothing of what it is for
      if (cut && i >= first_x) {                        // a slice
        const auto stacked = cut->axes.begin() + static_cast<std::ptrdiff_t>(cut->outer);
        if (stacked->empty())
          cut->axes.erase(stacked);
        else
          cut = std::nullopt;
      }
      in.push_back(std::move(cut));
    }
    settle(p.body, in, p.first_carry(), p.carries);
    Partitions out = follow_into(programs[0], std::move(in));
    for (std::size_t i = p.carries; i < out.size(); ++i)
      if (p.taped)
        out[i] = std::nullopt;
      else if (out[i])
        out[i]->axes.insert(out[i]->axes.begin() + static_cast<std::ptrdiff_t>(out[i]->outer),
                            std::vector<std::string>());
    return out;
  }
};

}  // namespace

ProgramPtr with_parts(const ProgramPtr& body, const Mesh& mesh, const std::vector<P>& in) {
  if (!has_site(*body)) return body;
  Partitions inputs;
  for (std::size_t i = 0; i < in.size(); ++i)
    inputs.push_back(partition_of(in[i], body->type(body->inputs[i])));
  return Follower(mesh).follow(body, std::move(inputs)).program;
}

}  // namespace postern::internal
