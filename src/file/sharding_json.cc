// Meshes and shardings as JSON.
#include "core/check.h"
#include "file/site_json.h"

namespace postern::internal::file {

Json written(const Mesh& mesh) {
  Json axes = Json::array();
  for (const MeshAxis& a : mesh.axes()) {
    axes.push_back({a.name, a.size});
    if (a.of_processes) axes.back().push_back("processes");
  }
  return {{"axes", axes}, {"devices", mesh.devices()}};
}

Mesh mesh_from(const Json& json) {
  constexpr std::int64_t most = 1 << 20;
  std::vector<MeshAxis> axes;
  std::int64_t size = 1;
  for (const Json& a : json.at("axes")) {
    const auto count = exactly<std::int64_t>(a.at(1));
    check(count > 0, "a mesh is out of range");
    if (a.size() > 2)  // of processes; "all": as many as there are, see of_all_processes
      axes.emplace_back(a.at(0).get<std::string>(),
                        a.at(2) == "all" ? Processes() : processes(count));
    else
      axes.emplace_back(a.at(0).get<std::string>(), count);
    check(axes.back().size > 0 && axes.back().size <= most / size, "a mesh is out of range");
    size *= axes.back().size;
  }
  auto devices = exactly<std::vector<int>>(json.at("devices"));
  for (const int d : devices) check(d >= 0, "a mesh has a device {}", d);
  return {std::move(axes), std::move(devices)};
}

Json written(const Sharding& sharding) {
  return {{"mesh", written(sharding.mesh())}, {"spec", sharding.spec().parts()}};
}

void of_all_processes(Json& sharding) {
  for (Json& axis : sharding.at("mesh").at("axes"))
    if (axis.size() > 2) axis.at(2) = "all";
}

Sharding sharding_from(const Json& json) {
  return {mesh_from(json.at("mesh")),
          P(json.at("spec").get<std::vector<std::vector<std::string>>>())};
}

}  // namespace postern::internal::file
