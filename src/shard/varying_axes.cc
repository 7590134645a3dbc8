// Along which mesh axes values inside shard_map may differ from device to device: where devices
// meet in a branch or loop, all that meet must take the same way, or some would wait for ever.
// Parts of arguments, results of calls and axis_index differ; what devices tell each other makes
// them agree. Processes that meet give each device what it gave, so that differs as before.
#include <algorithm>
#include <cstdint>

#include "analysis/follow.h"
#include "core/site_spec.h"
#include "shard/processes.h"
#include "shard/shard_map.h"

namespace postern::internal {

namespace {

using AxisSet = std::uint64_t;  // a bit for each axis of the mesh that tells devices apart
using AxisSets = std::vector<AxisSet>;

AxisSet union_of(const AxisSets& list) {
  AxisSet all = 0;
  for (const AxisSet axes : list) all |= axes;
  return all;
}

class VaryingAxes {
 public:
  /// With `refuses`, throws where devices that meet may go different ways.
  VaryingAxes(const Mesh& mesh, bool refuses) : mesh_(mesh), refuses_(refuses) {
    for (const MeshAxis& axis : mesh.axes())
      if (axis.size > 1) names_.push_back(axis.name);
  }

  AxisSet axes_of(const std::vector<std::string>& names) const {
    AxisSet out = 0;
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (std::ranges::find(names, names_[i]) != names.end()) out |= AxisSet{1} << i;
    return out;
  }
  std::vector<std::string> names_of(AxisSet axes) const {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (axes >> i & 1) out.push_back(names_[i]);
    return out;
  }

  AxisSets follow(const Program& program, const AxisSets& inputs) const {
    return internal::follow(program, inputs, [&](const Equation& e, const AxisSets& operands) {
      return of_equation(e, operands);
    });
  }

  using Value = AxisSet;
  AxisSets into(const ProgramPtr& program, const AxisSets& inputs) const {
    return VaryingAxes(mesh_, false).follow(*program, inputs);
  }
  static bool join(const Equation&, std::size_t, AxisSet& into, AxisSet other) {
    const AxisSet before = std::exchange(into, into | other);
    return into != before;
  }
  static AxisSet number() { return 0; }
  static AxisSet slice(AxisSet x, bool) { return x; }
  AxisSet stacked(AxisSet y, bool offloaded) const {
    if (offloaded) return every_axis();  // each device has stores of its own
    return y;
  }

 private:
  AxisSets of_equation(const Equation& e, const AxisSets& operands) const {
    const auto all_results = [&](AxisSet axes) { return AxisSets(at(e.results), axes); };
    if (branches_or_loops(e)) return of_control_flow(e, operands);
    if (e.primitive == &axis_index_p) return all_results(axes_of(collective_axes(e)));
    if (is_collective(e)) {
      const AxisSet met = axes_of(collective_axes(e)), before = union_of(operands);
      return all_results(e.primitive->gives_same ? before & ~met : before | met);
    }
    if (const SiteSpec* site = site_of(e)) {
      if (site->is_tap()) return {operands.begin(), operands.begin() + e.results};
      if (site->named.name == process_call) return all_results(union_of(operands));
      return all_results(every_axis());  // each device asks a function of its own
    }
    if (e.primitive->transparent) return follow(*programs_of(*e.params)[0], operands);
    return all_results(union_of(operands));
  }

  AxisSet every_axis() const { return axes_of(names_); }

  /// Throws where devices meet in the equation's programs along an axis of `decides`: those along
  /// which the devices may go different ways.
  void require_same_way(const Equation& e, AxisSet decides) const {
    if (!refuses_ || !decides) return;
    const Equation* collective = nullptr;  // the first along such an axis
    for (const ProgramPtr& p : programs_of(*e.params))
      any_equation(*p, [&](const Equation& inner) {
        // XLA has all devices meet in some of them, whatever their axes are.
        if (is_collective(inner) && decides & axes_of(rendezvous_axes(inner))) collective = &inner;
        return collective != nullptr;
      });
    if (!collective) return;
    const bool loop = e.primitive->loops();
    const char* const decider = loop ? "the condition" : "what decides for a branch";
    const AxisSet axes = decides & axes_of(rendezvous_axes(*collective));
    PlaceScope::Replace at_equation(e.place);
    throw_type_error(fmt::format(
        "{0} inside shard_map: {1} may differ from device to device along the mesh axis '{2}', and "
        "inside of it devices meet along that axis ({3} at {4}), where those that go another way "
        "would be waited for for ever. Let the devices agree first (pmax, pmin or psum over '{2}' "
        "of what {5}), or take the collective out of it",
        loop ? "while_loop" : "cond or switch_", decider, fmt::join(names_of(axes), "', '"),
        collective->primitive->name, to_string(collective->place),
        loop ? "the condition compares" : "decides"));
  }

  AxisSets of_control_flow(const Equation& e, const AxisSets& operands) const {
    Flow<AxisSet> flow = through(*this, e, operands);
    const bool is_while = e.primitive->control == ControlFlow::while_loop;
    AxisSet decides = 0;  // the condition, the index, or an offloaded scan's number of steps
    if (is_while)
      decides = flow.outputs[0][0];
    else if (!e.primitive->loops() || e.primitive->calls)
      decides = operands[0];
    if (!e.primitive->loops()) require_same_way(e, decides);
    // What is inside of them is refused too: in a loop, that of the body before the condition's.
    std::vector<ProgramPtr> programs;
    if (refuses_) programs = programs_of(*e.params);
    for (std::size_t i = 0; i < programs.size(); ++i) {
      const std::size_t p = is_while ? programs.size() - 1 - i : i;
      follow(*programs[p], flow.inputs[p]);
    }
    // How many steps a bounded loop has another loop decides, and that one is looked at.
    if (is_while && !as<WhileParams>(*e.params).bounded) require_same_way(e, decides);
    for (AxisSet& result : flow.results) result |= decides;
    return flow.results;
  }

  const Mesh& mesh_;
  std::vector<std::string> names_;  // of axes of extent 1 none: at most 32, as a Mesh is limited
  bool refuses_;
};

AxisSets of_specs(const VaryingAxes& varying, const std::vector<P>& specs) {
  AxisSets out;
  for (const P& spec : specs) {
    out.push_back(0);
    for (const auto& names : spec.parts()) out.back() |= varying.axes_of(names);
  }
  return out;
}
}  // namespace

void refuse_different_ways(const Program& body, const Mesh& mesh, const std::vector<P>& in) {
  if (!has_collective(body)) return;
  const VaryingAxes varying(mesh, true);
  varying.follow(body, of_specs(varying, in));
}

std::vector<std::vector<std::string>> axes_that_differ(const Program& body, const Mesh& mesh,
                                                       const std::vector<P>& in) {
  const VaryingAxes varying(mesh, false);
  std::vector<std::vector<std::string>> out;
  for (const AxisSet axes : varying.follow(body, of_specs(varying, in)))
    out.push_back(varying.names_of(axes));
  return out;
}

void refuse_one_order(const Program& program, const char* inside) {
  for (const Equation& e : program.equations) {
    if (e.primitive->site && inside) {
      const SiteSpec& site = *site_of(e);
      PlaceScope::Replace at(site.place);
      check(!site.one_order,
            "{} '{}': one_order needs every device to pass equally often, and inside a {} in "
            "shard_map devices may go different ways; use "
            "scan, or fori_loop with known bounds, or leave the order to each device",
            word_of(site.kind), site.name, inside);
    }
    const ControlFlow control = e.primitive->control;
    const bool may_differ = control == ControlFlow::while_loop || control == ControlFlow::branches;
    if (!e.params) continue;
    for (const ProgramPtr& p : programs_of(*e.params))
      refuse_one_order(*p, may_differ ? e.primitive->name : inside);
  }
}

}  // namespace postern::internal
