// Groups of devices, and their votes.
#include "lower/collectives.h"

#include <algorithm>

#include "core/program.h"

namespace postern::internal {

bool is_collective(const Equation& e) { return e.primitive->rendezvous_axes != nullptr; }
bool has_collective(const Program& program) { return any_equation(program, is_collective); }

std::vector<std::string> rendezvous_axes(const Equation& e) {
  return e.primitive->rendezvous_axes(*e.params);
}

std::string groups_text(Lowering& out, const Mesh& mesh, const std::vector<std::string>& axes) {
  const auto groups = device_groups(mesh, axes);
  std::vector<std::string> lists;
  for (const auto& group : groups) {
    std::vector<std::int64_t> ids;
    for (const std::int64_t position : group)
      ids.push_back(partition_of(mesh, position, out.devices()));
    lists.push_back(fmt::format("[{}]", fmt::join(ids, ", ")));
  }
  return fmt::format("replica_groups = dense<[{}]> : tensor<{}x{}xi64>, {}", fmt::join(lists, ", "),
                     groups.size(), groups[0].size(), out.channel());
}

void reducing_region(Lowering& out, const char* reducer, const std::string& scalar) {
  out.region({scalar, scalar}, [&](std::span<const Ssa> in) {
    const Ssa r = out.fresh();
    out.write("    %{} = stablehlo.{} %{}, %{} : {}\n", r.id, reducer, in[0].id, in[1].id, scalar);
    return std::vector<Lowering::Typed>{{r, scalar}};
  });
}

std::vector<std::string> axes_met(const Lowering& out, std::span<const ProgramPtr> programs) {
  if (!out.mesh() || !out.leaves_zeros()) return {};
  std::vector<std::string> all = all_axes(*out.mesh()), met;
  for (const ProgramPtr& program : programs) {
    any_equation(*program, [&](const Equation& e) {
      if (!is_collective(e)) return false;
      const std::vector<std::string> axes = rendezvous_axes(e);
      met.insert(met.end(), axes.begin(), axes.end());
      return false;
    });
  }
  std::erase_if(all,
                [&](const std::string& axis) { return std::ranges::find(met, axis) == met.end(); });
  return all;
}

Ssa ask_run(Lowering& out, Lowering::Typed after) {
  const Ssa here = out.fresh();
  out.write(
      "    %{} = \"stablehlo.custom_call\"(%{}) {{call_target_name = \"postern_goes_on\", "
      "api_version = 4 : i32, has_side_effect = true{}}} : ({}) -> tensor<i1>\n",
      here.id, after.value.id, out.where_it_runs(1, -1), after.type);
  return here;
}

Ssa everywhere(Lowering& out, Ssa flag, const std::vector<std::string>& axes) {
  if (axes.empty()) return flag;
  const Type pred{DType::pred, {}}, number{DType::s32, {}};
  const Ssa votes = out.op("convert", {flag}, {&pred}, number), least = out.fresh();
  out.write("    %{} = \"stablehlo.all_reduce\"(%{}) (", least.id, votes.id);
  reducing_region(out, "minimum", "tensor<i32>");
  out.write(") {{{}, use_global_device_ids}} : (tensor<i32>) -> tensor<i32>\n",
            groups_text(out, *out.mesh(), axes));
  return out.op("convert", {least}, {&number}, pred);
}

}  // namespace postern::internal
