// Masks over a whole batch: the function sees which elements are alive, if any is.
#include <algorithm>

#include "core/lists.h"
#include "host/enter.h"

namespace postern::internal::host {

static bool enter_if_alive(const Stage& stage, Invocation& i) noexcept try {
  const HostSite& site = i.site;
  const std::span mask(static_cast<const bool*>(i.data[site.operands]),
                       size_of(site.spec->batch.mask_size));
  if (std::none_of(mask.begin(), mask.end(), [](bool alive) { return alive; })) {
    zero_results(site, i.data);
    return true;
  }
  std::vector<void*> leaves(i.data, i.data + site.operands);
  leaves.insert(leaves.end(), i.data + site.inputs, i.data + site.buffers);
  Invocation whole = i;
  whole.data = leaves.data();
  whole.mask = mask;
  return stage.next->enter(whole);
} catch (...) {
  return keep_exhausted(i);
}

const StageRow mask_stage = {
    .applies =
        [](const HostSite& s) { return s.spec->batch.masked && s.spec->batch.levels.empty(); },
    .enter = enter_if_alive,
    .sees_leaves = true};

}  // namespace postern::internal::host
