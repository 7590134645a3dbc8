// Adding, removing and choosing overrides.
#include "block/overrides.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <set>
#include <typeindex>
#include <unordered_map>
#include <utility>

#include "block/own_kernels.h"
#include "block/sharding_rule.h"
#include "core/check.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"

namespace postern::internal::blocks {

namespace {

struct Overrides {
  Mutex guard;
  std::unordered_map<std::type_index, std::vector<OverridePtr>> by_type;  // latest last
  std::set<std::type_index> used;
  std::uint64_t next = 1;
};
Overrides& overrides() { return never_destroyed<Overrides>(); }
std::atomic<std::uint64_t> generation_count{0};

thread_local bool adding_own = false;

std::vector<OverridePtr> overrides_of(const std::type_info& type) {
  Overrides& all = overrides();
  std::scoped_lock lock(all.guard);
  const auto found = all.by_type.find(type);
  if (found == all.by_type.end()) return std::vector<OverridePtr>();
  return found->second;
}

/// Says why the kernel's parameters do not take these leaves; empty if they do. A parameter for all
/// operands at once comes first and stands for them; views that are mutable are of results.
std::string dtype_mismatch(const Callee& kernel, const Types& operands, const Types& results) {
  using Kind = detail::Parameter::Kind;
  if (!kernel.function()) return "";
  const auto& parameters = kernel.function()->parameters;
  const bool takes_all = !parameters.empty() && parameters[0].kind == Kind::all_operands;
  const std::size_t first = takes_all ? 1 : 0, for_operands = takes_all ? 1 : operands.size();
  for (std::size_t i = first; i < parameters.size(); ++i) {
    const Kind kind = parameters[i].kind;
    const DType dtype = parameters[i].dtype;
    if (kind != Kind::view && kind != Kind::mutable_view && kind != Kind::number) continue;
    const bool is_result = kind == Kind::mutable_view;
    const std::size_t leaf = is_result ? i - for_operands : i;
    const Types& types = is_result ? results : operands;
    if (leaf < types.size() && types[leaf].dtype != dtype)
      return fmt::format("its kernel is for {}, {} {} is {}", to_string(dtype),
                         is_result ? "result" : "operand", leaf, to_string(types[leaf]));
  }
  return "";
}

/// Says why the override is not taken; empty: it accepts.
std::string refusal(const Override& o, const Question& q) {
  enters_users_code();
  if (!q.platform) return "the program is for no platform in particular";
  if (o.only_on && o.only_on != q.platform) return fmt::format("it is for {}", o.platform);
  if (o.when && !o.when(q.config.object.get(), q.operands)) return "its condition declines";
  if (o.keeps_default) return "";
  if (!o.program && !q.called && !platforms::used_here().calls_back)
    return "the plug-in cannot enter native code";
  if (q.batched && !o.program && !o.batch)
    return "the block is batched and it has no batching method";
  if (q.batched && o.target && *o.batch == VmapMethod::parallel)
    return "a target cannot run for elements of a batch at the same time";
  const std::string refused = refused_conversion(o.operand_dtypes, q.operands);
  if (!refused.empty()) return refused;
  if (!o.kernel) return "";
  return dtype_mismatch(o.kernel(q.config.object),
                        with_dtypes(Types(q.operands.begin(), q.operands.end()), o.operand_dtypes),
                        with_dtypes(Types(q.results.begin(), q.results.end()), o.result_dtypes));
}

}  // namespace

static std::string kind_of(const Override& o) {
  if (o.keeps_default) return "keep_default";
  if (o.kernel) return "kernel";
  if (o.target) return fmt::format("target {}", o.target->name);
  return "program";
}

std::string describe(const Override& o) {
  const std::string what = kind_of(o);
  if (o.place.known()) return fmt::format("{} at {}", what, to_string(o.place));
  return what;
}

OwnScope::OwnScope() : Scoped(adding_own, true) {}
bool OwnScope::here() { return adding_own; }

/// Returns the latest that accepts, null where it keeps the default; none: nobody accepts.
static std::optional<OverridePtr> latest(const Question& q, std::vector<std::string>* why) {
  const std::vector<OverridePtr> all = overrides_of(*q.config.type);
  if (why) why->clear();
  for (std::size_t i = all.size(); i-- > 0;) {
    const std::string refused = refusal(*all[i], q);
    if (why) {
      std::string answer = "accepts";
      if (!refused.empty()) answer = "declines: " + refused;
      why->push_back(fmt::format("{} {}", describe(*all[i]), answer));
    }
    if (!refused.empty()) continue;
    if (all[i]->keeps_default) return OverridePtr();
    return all[i];
  }
  if (why && all.empty()) why->push_back("no override is registered");
  return std::nullopt;
}

OverridePtr choose(const Question& q, std::vector<std::string>* why) {
  std::optional<OverridePtr> found = latest(q, why);
  const bool enters = q.called || platforms::used_here().calls_back;
  if (!found && q.platform && enters && open_kernels(q.config.name, *q.platform))
    found = latest(q, why);
  return found.value_or(nullptr);
}

/// Asks the overrides of all types of that name, the latest first, for the config of these
/// attributes. They are the users': none is asked under the lock.
static std::optional<detail::BlockConfig> known_config(const std::string& name,
                                                       const Attributes& attributes) {
  std::vector<OverridePtr> named;
  {
    Overrides& all = overrides();
    std::scoped_lock lock(all.guard);
    for (const auto& [type, list] : all.by_type)
      for (const OverridePtr& o : list)
        if (o->block == name && o->config_from) named.push_back(o);
  }
  enters_users_code();
  std::ranges::sort(named, std::greater(), &Override::id);
  for (const OverridePtr& o : named)
    if (auto config = o->config_from(attributes)) return config;
  return {};
}

std::optional<detail::BlockConfig> config_named(const std::string& name,
                                                const Attributes& attributes,
                                                const platforms::Platform& platform) {
  auto config = known_config(name, attributes);
  if (!config && open_kernels(name, platform)) config = known_config(name, attributes);
  return config;
}

void note_used(const detail::BlockConfig& config) {
  Overrides& all = overrides();
  std::scoped_lock lock(all.guard);
  all.used.insert(*config.type);
}

static bool was_used(const detail::BlockConfig& config) {
  Overrides& all = overrides();
  std::scoped_lock lock(all.guard);
  return all.used.contains(*config.type);
}

std::uint64_t generation() { return generation_count.load(std::memory_order_acquire); }
std::uint64_t& met() {
  thread_local std::uint64_t count = 0;
  return count;
}
std::vector<std::uint64_t>*& recorded() {
  thread_local std::vector<std::uint64_t>* list = nullptr;
  return list;
}

}  // namespace postern::internal::blocks

namespace postern {
using namespace internal;

using blocks::Override;
using blocks::overrides;

std::uint64_t detail::add_override(ErasedOverride o) {
  PlaceScope at(o.place);
  const int forms = static_cast<bool>(o.kernel) + (o.target != nullptr) + (o.program != nullptr) +
                    o.keeps_default;
  check(forms == 1,
        "override_block '{}': exactly one of kernel, target and program is needed, got {}", o.block,
        forms);
  check((o.vjp_forward == nullptr) == (o.vjp_backward == nullptr),
        "override_block '{}': a vjp needs both forward and backward", o.block);
  const platforms::Platform* only_on = nullptr;
  if (!o.platform.empty())
    only_on = &platforms::named(o.platform, fmt::format("override_block '{}'", o.block));
  check(!o.target || o.batch != VmapMethod::parallel,
        "override_block '{}': the batching method of a target is sequential, expand_dims or "
        "broadcast_all",
        o.block);
  if (o.target) {
    if (o.operand_dtypes.empty()) o.operand_dtypes = o.target->operand_dtypes;
    if (o.result_dtypes.empty()) o.result_dtypes = o.target->result_dtypes;
    if (o.sharding.empty() && !o.sharding_of) o.sharding = o.target->sharding;
  }
  if (!o.sharding.empty())
    blocks::parse_sharding(fmt::format("override_block '{}'", o.block), o.sharding);
  auto& all = overrides();
  std::scoped_lock lock(all.guard);
  auto added = std::make_shared<Override>();
  static_cast<ErasedOverride&>(*added) = std::move(o);
  added->id = all.next++;
  added->only_on = only_on;
  auto& list = all.by_type[*added->type];
  const bool own = blocks::OwnScope::here();
  list.insert(own ? list.begin() : list.end(), added);  // the last one is asked first
  if (!own) blocks::generation_count.fetch_add(1, std::memory_order_release);
  if (blocks::recorded()) blocks::recorded()->push_back(added->id);
  return added->id;
}

bool detail::remove_override(std::uint64_t id) {
  blocks::OverridePtr gone;  // goes after the lock, with the functions in it
  auto& all = overrides();
  std::scoped_lock lock(all.guard);
  for (auto& [type, list] : all.by_type) {
    const auto found = std::ranges::find(list, id, &Override::id);
    if (found == list.end()) continue;
    gone = std::move(*found);
    list.erase(found);
    blocks::generation_count.fetch_add(1, std::memory_order_release);
    return true;
  }
  return false;
}

bool detail::has_override(std::uint64_t id) {
  auto& all = overrides();
  std::scoped_lock lock(all.guard);
  for (const auto& [type, list] : all.by_type)
    for (const auto& o : list)
      if (o->id == id) return true;
  return false;
}

bool detail::read_dtype(std::string_view name, DType& dtype) {
  for (int i = 0; i < dtype_count; ++i)
    if (to_string(static_cast<DType>(i)) == name) {
      dtype = static_cast<DType>(i);
      return true;
    }
  return false;
}

std::string detail::block_type_name(const std::type_info& type) { return readable_name(type); }

BlockPath detail::block_path(const BlockConfig& config, std::span<const Type> operands,
                             const std::string& platform, const Place& place) {
  PlaceScope at(place);
  std::vector<std::string> why;
  const auto chosen = blocks::choose({.config = config,
                                      .operands = operands,
                                      .results = {},
                                      .platform = &platforms::named(platform, "block_path")},
                                     &why);
  const bool used = blocks::was_used(config);
  const std::string shown = named_text(config.name, config.attributes);
  auto path = [&](BlockPath::Kind kind, const char* word) {
    return BlockPath{kind, fmt::format("{} for {} on {}: {} ({})", shown, to_string(operands),
                                       platform, word, fmt::join(why, "; "))};
  };
  if (chosen) return path(BlockPath::Kind::native, "native");
  if (used) return path(BlockPath::Kind::default_body, "default");
  return path(BlockPath::Kind::none, "none");
}

std::string to_string(const BlockPath& path) { return path.text; }

}  // namespace postern
