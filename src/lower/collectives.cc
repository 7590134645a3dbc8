// Groups of devices, and their votes.
#include "lower/collectives.h"

#include <algorithm>

#include "core/program.h"

namespace postern::internal {

bool is_collective(const Equation& e) { return e.primitive->rendezvous_axes != nullptr; }
bool has_collective(const Program& program) { return any_equation(program, is_collective); }

AxisList rendezvous_axes(const Equation& e) { return e.primitive->rendezvous_axes(*e.params); }

std::string rendezvous_attributes(Lowering& out, const Mesh& mesh, const AxisList& axes) {
  const auto groups = device_groups(mesh, axes);
  std::vector<std::string> lists;
  for (const auto& group : groups) {
    std::vector<std::int64_t> ids;
    for (const std::int64_t position : group)
      ids.push_back(partition_of(mesh, position, out.devices()));
    lists.push_back(fmt::format("[{}]", fmt::join(ids, ", ")));
  }
  const std::string own_channel = out.channel();
  return fmt::format("replica_groups = dense<[{}]> : tensor<{}x{}xi64>, {}", fmt::join(lists, ", "),
                     groups.size(), groups[0].size(), own_channel);
}

void reducing_region(Lowering& out, const char* reducer, const std::string& scalar) {
  out.region({scalar, scalar}, [&](std::span<const Ssa> in) {
    const Ssa r = out.fresh();
    out.write("    %{} = stablehlo.{} %{}, %{} : {}\n", r.id, reducer, in[0].id, in[1].id, scalar);
    return std::vector<Lowering::Typed>{{r, scalar}};
  });
}

AxisList axes_met(const Lowering& out, std::span<const ProgramPtr> programs) {
  if (!out.mesh() || !out.leaves_zeros()) return {};
  AxisList met, in_order = all_axes(*out.mesh());
  for (const ProgramPtr& program : programs) {
    any_equation(*program, [&](const Equation& e) {
      if (!is_collective(e)) return false;
      const AxisList axes = rendezvous_axes(e);
      met.insert(met.end(), axes.begin(), axes.end());
      return false;  // so that all are seen
    });
  }
  std::erase_if(in_order, [&](const std::string& axis) { return !std::ranges::count(met, axis); });
  return in_order;
}

Ssa ask_run(Lowering& out, Lowering::Typed after) {
  const Ssa goes_on = out.fresh();
  out.write(
      "    %{} = \"stablehlo.custom_call\"(%{}) {{call_target_name = \"postern_goes_on\", "
      "api_version = 4 : i32, has_side_effect = true{}}} : ({}) -> tensor<i1>\n",
      goes_on.id, after.value.id, out.where_it_runs(1, -1), after.type);
  return goes_on;
}

Ssa everywhere(Lowering& out, Ssa flag, const AxisList& axes) {
  if (axes.empty()) return flag;
  // The least of 0 and 1 over the devices is whether it is so on all.
  const Type pred{DType::pred, {}}, number{DType::s32, {}};
  const Ssa vote = out.op("convert", {flag}, {&pred}, number), least = out.fresh();
  out.write("    %{} = \"stablehlo.all_reduce\"(%{}) (", least.id, vote.id);
  reducing_region(out, "minimum", "tensor<i32>");
  out.write(") {{{}, use_global_device_ids}} : (tensor<i32>) -> tensor<i32>\n",
            rendezvous_attributes(out, *out.mesh(), axes));
  return out.op("convert", {least}, {&number}, pred);
}

}  // namespace postern::internal
