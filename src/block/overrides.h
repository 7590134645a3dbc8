// The overrides of the process, and which of them a block takes.
#pragma once
#include <postern/block.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/scoped.h"
#include "platform/platform.h"

namespace postern::internal::blocks {

struct Override : detail::ErasedOverride {
  std::uint64_t id = 0;
  const platforms::Platform* only_on = nullptr;  // null: any platform
};
using OverridePtr = std::shared_ptr<const Override>;

/// What a choice is made for. `results` may be empty: not known.
struct Question {
  const detail::BlockConfig& config;
  std::span<const Type> operands, results;  // of one element
  bool batched = false;
  const platforms::Platform* platform = nullptr;  // null: to be kept for all, no override is taken
  bool called = false;  // by `call`, which programs make do with where a plug-in enters no kernels
};

/// Returns the latest override that accepts, null for the default. `why`, when given, gets a
/// sentence for each that was asked. Throws PluginError where the library with our own is missing.
OverridePtr choose(const Question& question, std::vector<std::string>* why = nullptr);

/// Returns the config of that name with these fields, as the latest override makes it whose config
/// it is. Throws like `choose`.
std::optional<detail::BlockConfig> config_named(const std::string& name,
                                                const Attributes& attributes,
                                                const platforms::Platform& platform);

/// Says in words: `kernel at attention.cc:12`.
std::string describe(const Override& override);

/// Remembers that a block of this type has a default.
void note_used(const detail::BlockConfig& config);

/// Changes whenever an override comes or goes: what was decided before may be decided otherwise.
std::uint64_t generation();
/// Returns how many times this thread has written or looked at a block: whoever traces can tell
/// whether blocks were met.
std::uint64_t& met();

/// Returns where ids of the overrides that this thread adds go while it is not null; for libraries
/// that fail while loading.
std::vector<std::uint64_t>*& recorded();

/// While it lives, what this thread adds is Postern's own: it comes before whatever others have
/// added, and changes no decision.
class OwnScope : Scoped<bool> {
 public:
  OwnScope();
  static bool here();
};

}  // namespace postern::internal::blocks
