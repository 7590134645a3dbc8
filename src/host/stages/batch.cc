// Batches: the function is entered for each element, one after another or side by side.
#include <postern/detail/small_vector.h>

#include <cstring>

#include "core/lists.h"
#include "host/enter.h"
#include "host/executor.h"

namespace postern::internal::host {

namespace {

/// Where the elements of a batch are. Elements are counted row-major over the levels, of which the
/// innermost is the last.
struct Batch {
  std::int64_t elements = 1;
  std::vector<std::vector<std::size_t>> strides;  // bytes, by level and leaf
  std::vector<std::size_t> mask_strides;          // by level

  /// A leaf that lacks a level stands still along it: its stride is 0.
  explicit Batch(const HostSite& site)
      : strides(site.spec->batch.levels.size(), std::vector<std::size_t>(site.leaves.size(), 0)),
        mask_strides(site.spec->batch.levels.size(), 0) {
    std::vector<std::size_t> step = site.leaf_bytes;
    std::size_t mask_step = 1;
    for (std::size_t l = strides.size(); l-- > 0;) {
      const BatchLevel& level = site.spec->batch.levels[l];
      elements *= level.size;
      for (std::size_t i = 0; i < step.size(); ++i) {
        if (i < site.operands && !level.mapped[i]) continue;
        strides[l][i] = step[i];
        step[i] *= size_of(level.size);
      }
      if (site.spec->batch.masked && level.mapped[site.operands]) {
        mask_strides[l] = mask_step;
        mask_step *= size_of(level.size);
      }
    }
  }
};

/// Enters the function for element `e` of the batch; one that the mask leaves out gets zeros.
bool enter_element(const Stage& stage, const Batch& batch, const Invocation& whole,
                   std::int64_t e) noexcept try {
  const HostSite& site = whole.site;
  detail::SmallVector<void*, HostSite::few> data(site.leaves.size());
  std::size_t mask_at = 0;
  for (std::size_t i = 0; i < site.leaves.size(); ++i)
    data[i] = whole.data[i < site.operands ? i : i + site.spec->batch.masked];  // behind the mask
  std::int64_t rest = e;
  for (std::size_t l = batch.strides.size(); l-- > 0;) {
    const auto index = size_of(rest % site.spec->batch.levels[l].size);
    rest /= site.spec->batch.levels[l].size;
    for (std::size_t i = 0; i < site.leaves.size(); ++i)
      data[i] = static_cast<std::byte*>(data[i]) + index * batch.strides[l][i];
    mask_at += index * batch.mask_strides[l];
  }
  if (site.spec->batch.masked && !static_cast<const bool*>(whole.data[site.operands])[mask_at]) {
    for (std::size_t i = site.operands; i < site.leaves.size(); ++i)
      std::memset(data[i], 0, site.leaf_bytes[i]);
    return true;
  }
  Invocation one = whole;
  one.data = data.data();
  one.element = e;
  return stage.next->enter(one);
} catch (...) {
  return keep_exhausted(whole);
}

/// All elements count as one invocation. They are taken in order, and one that fails stops those
/// behind it, but none before it, so that the lowest that fails is told on every run.
bool enter_side_by_side(const Stage& stage, const Batch& batch, Invocation& i) noexcept {
  i.count();
  std::atomic<std::int64_t> lowest_failed = batch.elements;
  try {
    parallel_for(batch.elements, [&](std::int64_t e) {
      const Scoped at(one_of_many, e);
      const auto goes_on = [&] {
        return !i.run.stop.load() || i.run.batch_failed(i.site, i.device);
      };
      const bool ok = e < lowest_failed && goes_on() && enter_element(stage, batch, i, e);
      for (std::int64_t lowest = lowest_failed; !ok && e < lowest;)  // lowers it to `e` at most
        if (lowest_failed.compare_exchange_weak(lowest, e)) break;
    });
  } catch (...) {
    return keep_exhausted(i);
  }
  return lowest_failed == batch.elements;
}

bool enter_elements(const Stage& stage, Invocation& i) noexcept {
  const auto& batch = *static_cast<const Batch*>(stage.prepared.get());
  if (i.site.spec->call.vmap == VmapMethod::parallel) return enter_side_by_side(stage, batch, i);
  for (std::int64_t e = 0; e < batch.elements; ++e)
    if (i.run.stop.load(std::memory_order_relaxed) || !enter_element(stage, batch, i, e))
      return false;
  return true;
}

}  // namespace

const StageRow batch_stage = {
    .applies = [](const HostSite& s) { return !s.spec->batch.levels.empty(); },
    .enter = enter_elements,
    .prepare = [](const HostSite& s) -> std::shared_ptr<const void> {
      return std::make_shared<const Batch>(s);
    },
    .sees_leaves = true};

}  // namespace postern::internal::host
