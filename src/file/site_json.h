// Sites, types and shardings as JSON, for saved programs.
#pragma once
#include "core/site_spec.h"
#include "file/json.h"

namespace postern::internal::host {
struct PrintJob;
}

namespace postern::internal::file {

Json to_json(const SiteSpec& site);
/// Throws TypeError or a json exception for what to_json does not write.
SiteSpec site_from(const Json& json);

// Writes it as JSON. What follows throws the same.
Json to_json(const std::vector<Type>& types);
std::vector<Type> types_from(const Json& json);
Json to_json(const Attributes& attributes);
Attributes attributes_from(const Json& json);
Json to_json(const Mesh& mesh);
Mesh mesh_from(const Json& json);
Json to_json(const std::vector<std::optional<Sharding>>& list);
std::vector<std::optional<Sharding>> shardings_from(const Json& json);
Json to_json(const Sharding& sharding);
Sharding sharding_from(const Json& json);
/// Has the axes of processes of one that was written be of however many there are.
void of_all_processes(Json& sharding);

/// Returns why not; empty when it can be.
std::string why_not_saved(const host::PrintJob& job);
Json to_json(const host::PrintJob& job);
std::shared_ptr<const detail::HostFunction> print_from(const Json& json,
                                                       std::span<const Type> operands);

/// Writes numbers as text, which keeps infinities and every bit.
std::string number_text(double value);
double number_from(const std::string& text);

template <std::size_t n>
std::size_t index_of(const char* what, const char* const (&names)[n], const std::string& name) {
  for (std::size_t i = 0; i < n; ++i)
    if (name == names[i]) return i;
  throw_type_error(fmt::format("'{}' is no {}", name, what));
}

}  // namespace postern::internal::file
