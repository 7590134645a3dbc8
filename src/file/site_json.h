// Sites and types as JSON, for saved programs.
#pragma once
#include <nlohmann/json.hpp>

#include "core/site.h"

namespace postern::file {

using Json = nlohmann::ordered_json;

/// "f32[2,3]". Throws TypeError for anything that to_string(Type) does not write.
Type parse_type(std::string_view text);

/// A place whose file name lives as long as the process: errors may outlive the program.
Place place_in_file(const std::string& file, std::uint32_t line);

/// {"factor": {"double": "3"}}
std::string attributes_text(const Attributes& attributes);

Json to_json(const SiteSpec& site);
/// Throws TypeError or a json exception for what to_json does not write.
SiteSpec site_from(const Json& json);

}  // namespace postern::file
