// Blocks of saved programs: functions of the module, in whose place an override of this process may
// come.
#pragma once
#include "block/block.h"
#include "file/site_json.h"

namespace postern::internal::file {

struct SavedBlock {
  Named config;
  blocks::BlockParams params;  // but for config and default
  Module::Kept function;       // but for params
};

Json to_json(const Module::Kept& block);
/// Throws TypeError or a json exception for what to_json does not write.
SavedBlock block_from(const Json& json);
/// Throws TypeError unless the functions are where the blocks say, one after the other.
void check_places(std::span<const SavedBlock> blocks, std::string_view text);

/// Returns the module with what overrides bring for this platform in the place of defaults.
Module with_overrides(Module module, std::span<const SavedBlock> blocks,
                      const platforms::Platform& platform);

}  // namespace postern::internal::file
