// Writing and reading blocks, and choosing for them.
#include "file/block_json.h"

namespace postern::file {

Json to_json(const Module::Kept& block) {
  const auto& p = as<blocks::BlockParams>(*block.params);
  Json levels = Json::array();
  for (const blocks::Level& l : p.levels)
    levels.push_back({{"size", l.size}, {"mapped", l.mapped}, {"masked", l.masked}});
  return {{"name", p.config->name},
          {"attributes", to_json(p.config->attributes)},
          {"operands", to_json(p.operands)},
          {"results", to_json(p.results)},
          {"levels", levels},
          {"function", block.function},
          {"inputs", to_json(block.inputs)},
          {"outputs", to_json(block.outputs)},
          {"begin", block.begin},
          {"end", block.end}};
}

SavedBlock block_from(const Json& json) {
  SavedBlock b;
  b.name = json.at("name").get<std::string>();
  b.attributes = attributes_from(json.at("attributes"));
  b.params.operands = types_from(json.at("operands"));
  b.params.results = types_from(json.at("results"));
  b.function = {json.at("function").get<std::string>(), nullptr,
                types_from(json.at("inputs")),          types_from(json.at("outputs")),
                json.at("begin").get<std::size_t>(),    json.at("end").get<std::size_t>()};
  std::size_t inputs = b.params.operands.size();
  for (const Json& l : json.at("levels")) {
    blocks::Level level{l.at("size").get<std::int64_t>(), l.at("mapped").get<std::vector<bool>>(),
                        l.at("masked").get<bool>()};
    check(level.size >= 0 && level.mapped.size() == inputs,
          "a level of block {} does not fit its operands", b.name);
    inputs += level.masked;
    b.params.levels.push_back(std::move(level));
  }
  check(b.function.inputs.size() >= inputs && b.function.outputs.size() >= b.params.results.size(),
        "the function of block {} has fewer operands or results than the block", b.name);
  return b;
}

void check_places(std::span<const SavedBlock> blocks, std::string_view text) {
  std::size_t at = 0;
  for (const SavedBlock& b : blocks) {
    const auto& [function, params, inputs, outputs, begin, end] = b.function;
    check(at <= begin && begin <= end && end <= text.size() &&
              text.substr(begin, end - begin)
                  .starts_with(fmt::format("  func.func private @{}(", function)),
          "block {} is not where the file says", b.name);
    at = end;
  }
}

Module with_overrides(Module module, std::span<const SavedBlock> blocks,
                      const platforms::Platform& platform) {
  for (std::size_t i = blocks.size(); i-- > 0;) {  // from the last on, so that places stay right
    const SavedBlock& b = blocks[i];
    auto config = blocks::config_named(b.name, b.attributes);
    if (!config) continue;
    blocks::BlockParams params = b.params;
    params.config = std::make_shared<const detail::BlockConfig>(std::move(*config));
    Module::Kept kept = b.function;
    kept.params = make_params(std::move(params));
    auto native = blocks::native_function(kept, platform, module.sites.size());
    if (!native) continue;
    module.text.replace(kept.begin, kept.end - kept.begin, native->text);
    module.sites.insert(module.sites.end(), native->sites.begin(), native->sites.end());
  }
  return module;
}

}  // namespace postern::file
