// Writing and reading blocks, and choosing for them.
#include "file/block_json.h"

#include <postern/linalg.h>
#include <postern/reduce.h>

#include <algorithm>

#include "core/check.h"
#include "core/lists.h"
#include "file/described_json.h"
#include "trace/trace.h"

namespace postern::internal::file {

Json to_json(const Module::Kept& block) {
  const auto& p = as<blocks::BlockParams>(*block.params);
  return written_fields(Named{p.config->name, p.config->attributes}, p, block);
}

namespace {

bool begin_with(const Types& all, const Types& first) {
  return all.size() >= first.size() && std::ranges::equal(first, head(all, first.size()), alike);
}

/// Throws TypeError unless the function begins with the block's operands and results, each level of
/// batching having put its axis before those that it maps.
void check_types(const SavedBlock& block) {
  Types operands = block.params.operands, results = block.params.results;
  const auto batch = [](Type& t, std::int64_t size) { t.dims.insert(t.dims.begin(), size); };
  for (const blocks::Level& level : block.params.levels) {
    check(level.size >= 0 && level.mapped.size() == operands.size(),
          "a level of block {} does not fit its operands", block.config.name);
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (level.mapped[i]) batch(operands[i], level.size);
    if (level.masked) operands.push_back({DType::pred, {level.size}});
    for (Type& t : results) batch(t, level.size);
  }
  const Module::Kept& function = block.function;
  check(begin_with(function.inputs, operands) && begin_with(function.outputs, results),
        "the function of block {} takes {} and gives {}, which begins not with {} and {}",
        block.config.name, to_string(function.inputs), to_string(function.outputs),
        to_string(operands), to_string(results));
}

/// The settings of a block whose type of settings this is; null for another one.
template <class Config>
const Config* config_if(const detail::BlockConfig& config) {
  if (*config.type != typeid(Config)) return nullptr;
  return &blocks::config_of<Config>(config.object.get());
}

/// What a block of the library computes, as a function of tensors, which refuses what its kernels
/// do not take; none for other blocks.
struct Meaning {
  std::size_t operands = 1;
  TensorFunction function = {};
};

Meaning meaning_of(const detail::BlockConfig& config) {
  using namespace linalg;
  const auto as_list = [](const auto& parts) {
    return std::apply([](const auto&... part) { return Tensors{part...}; }, parts);
  };
  if (config_if<Cholesky>(config)) return {1, [](TensorSpan x) { return Tensors{cholesky(x[0])}; }};
  if (config_if<Lu>(config))
    return {1, [](TensorSpan x) {
              const LuResult y = lu(x[0]);
              return Tensors{y.lu, y.pivots, y.permutation};
            }};
  if (const Qr* const c = config_if<Qr>(config))
    return {1, [=](TensorSpan x) { return as_list(qr(x[0], c->full)); }};
  if (const Eigh* const c = config_if<Eigh>(config))
    return {1, [=](TensorSpan x) {
              if (!c->vectors) return Tensors{eigvalsh(x[0])};
              return as_list(eigh(x[0]));
            }};
  if (const Svd* const c = config_if<Svd>(config))
    return {1, [=](TensorSpan x) {
              if (!c->vectors) return Tensors{svdvals(x[0])};
              return as_list(svd(x[0], c->full));
            }};
  if (const Triangular* const c = config_if<Triangular>(config))
    return {2, [=](TensorSpan x) {
              const auto leading = [](Type t) {
                t.dims.resize(t.dims.size() - std::min<std::size_t>(t.dims.size(), 2));
                return t;
              };
              check(x[0].rank() == x[1].rank() && alike(leading(x[0].type()), leading(x[1].type())),
                    "its matrices do not go together");
              return Tensors{triangular_solve(x[0], x[1], *c)};
            }};
  if (const Cumulative* const c = config_if<Cumulative>(config))
    return {1, [=](TensorSpan x) {
              check(c->axis < 0, "its axis does not count from the end");
              return Tensors{cumsum(x[0], c->axis)};
            }};
  return {};
}

/// Throws TypeError where a block of the library is not of these types: its kernels trust them.
void check_own_types(const blocks::BlockParams& p) {
  const Meaning own = meaning_of(*p.config);
  if (!own.function) return;
  check(p.operands.size() == own.operands, "block {} takes {} operands, the file says {}",
        p.config->name, own.operands, p.operands.size());
  const Closed closed = trace_program(p.config->name, p.operands, own.function);
  const Types results = closed.program->output_types();
  check(std::ranges::equal(results, p.results, alike), "block {} gives {} for {}, the file says {}",
        p.config->name, to_string(results), to_string(p.operands), to_string(p.results));
}

}  // namespace

SavedBlock block_from(const Json& json) {
  SavedBlock b{};
  read_fields(json, "a block", b.config, b.params, b.function);
  check_types(b);
  return b;
}

void check_places(std::span<const SavedBlock> blocks, std::string_view text) {
  std::size_t last_end = 0;
  for (const SavedBlock& block : blocks) {
    const std::size_t begin = block.function.begin, end = block.function.end;
    const std::string declaration =
        fmt::format("  func.func private @{}(", block.function.function);
    check(last_end <= begin && begin <= end && end <= text.size() &&
              text.substr(begin, end - begin).starts_with(declaration),
          "block {} is not where the file says", block.config.name);
    last_end = end;
  }
}

Module with_overrides(Module module, std::span<const SavedBlock> blocks,
                      const platforms::Platform& platform) {
  for (std::size_t i = blocks.size(); i-- > 0;) {  // from the last on, so that places stay right
    const SavedBlock& b = blocks[i];
    auto config = blocks::config_named(b.config.name, b.config.attributes, platform);
    if (!config) continue;  // its default stays
    blocks::BlockParams params = b.params;
    params.config = std::make_shared<const detail::BlockConfig>(std::move(*config));
    check_own_types(params);
    Module::Kept kept = b.function;
    kept.params = make_params(std::move(params));
    auto native = blocks::native_function(kept, platform, module.sites.size());
    if (!native) continue;
    module.text.replace(kept.begin, kept.end - kept.begin, native->text);
    module.sites.insert(module.sites.end(), native->sites.begin(), native->sites.end());
  }
  return module;
}

}  // namespace postern::internal::file
