// The table, and finding in it.
#include "platform/platform.h"

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "core/check.h"
#include "core/text.h"
#include "platform/cpu/cpu.h"
#include "platform/cuda/cuda.h"
#include "platform/find_plugin.h"

namespace postern::internal::platforms {

namespace {

constexpr const Platform* table[] = {&cpu, &cuda};

std::atomic<const Platform*> lowered{table[0]};
std::atomic<bool> may_round{false};

}  // namespace

std::span<const Platform* const> all() { return table; }

const Platform& named(std::string_view name, std::string_view what) {
  const auto* const found = std::ranges::find(table, name, &Platform::name);
  if (found != std::end(table)) return **found;
  Separator comma;
  std::string known;
  for (const Platform* p : table) known += fmt::format("{}{}", comma(), p->name);
  throw_type_error(fmt::format("{}: '{}' is no known platform; known are {}", what, name, known));
}

const Platform& current() { return *lowered.load(); }
void set_current(const Platform& platform) { lowered = &platform; }
void let_products_be_rounded(bool may) { may_round = may; }

std::optional<std::size_t> position(const Platform& platform, std::span<const std::string> names) {
  const auto found = std::ranges::find(names, platform.name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

std::string plugin_path(const Platform& platform) {
  const char* chosen = environment("POSTERN_PLUGIN");
  if (!chosen) return platform.find_plugin();
  if (std::filesystem::exists(chosen)) return chosen;
  throw PluginError(ErrorCode::not_found, std::string("POSTERN_PLUGIN names the plug-in ") +
                                              chosen + ", which does not exist");
}

void lower_for(LoweringOptions& options, const Platform* platform) {
  // What is kept for all must be right on each.
  options.platform = {};
  options.compiler = {.max_loses_nan = true, .rounds_products = true};
  if (platform) {
    options.platform = platform->name;
    options.compiler = platform->compiler;
  }
  if (may_round) options.compiler.rounds_products = false;
}

const Platform* lowered_for(const Lowering& out) {
  if (out.platform().empty()) return nullptr;
  return &named(out.platform(), "lowering");
}

}  // namespace postern::internal::platforms
