// Meshes and shardings as JSON.
#include "core/check.h"
#include "file/site_json.h"

namespace postern::file {

Json to_json(const Mesh& mesh) {
  Json axes = Json::array();
  for (const MeshAxis& a : mesh.axes()) axes.push_back({a.name, a.size});
  return {{"axes", axes}, {"devices", mesh.devices()}};
}

Mesh mesh_from(const Json& json) {
  constexpr std::int64_t most = 1 << 20;
  std::vector<MeshAxis> axes;
  std::int64_t size = 1;
  for (const Json& a : json.at("axes")) {
    axes.push_back({a.at(0).get<std::string>(), a.at(1).get<std::int64_t>()});
    check(axes.back().size > 0 && axes.back().size <= most / size, "a mesh is out of range");
    size *= axes.back().size;
  }
  auto devices = json.at("devices").get<std::vector<int>>();
  for (const int d : devices) check(d >= 0, "a mesh has a device {}", d);
  return {std::move(axes), std::move(devices)};
}

Json to_json(const Sharding& sharding) {
  return {{"mesh", to_json(sharding.mesh())}, {"spec", sharding.spec().parts()}};
}

Sharding sharding_from(const Json& json) {
  return {mesh_from(json.at("mesh")),
          P(json.at("spec").get<std::vector<std::vector<std::string>>>())};
}

Json to_json(const std::vector<std::optional<Sharding>>& list) {
  Json out = Json::array();
  for (const auto& s : list) out.push_back(s ? to_json(*s) : Json());
  return out;
}

std::vector<std::optional<Sharding>> shardings_from(const Json& json) {
  std::vector<std::optional<Sharding>> out;
  for (const Json& s : json)
    out.push_back(s.is_null() ? std::optional<Sharding>() : sharding_from(s));
  return out;
}

}  // namespace postern::file
