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
Json written(const Attributes& attributes);
Attributes attributes_from(const Json& json);
Json written(const Mesh& mesh);
Mesh mesh_from(const Json& json);
Json written(const Sharding& sharding);
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

}  // namespace postern::internal::file
