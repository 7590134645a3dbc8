// Sites whose elements have less than a byte: XLA packs some of them, functions see one a byte.
#include <cstring>
#include <vector>

#include "core/check.h"
#include "core/value.h"
#include "host/fire.h"
#include "host/packing.h"

namespace postern::internal::host {

bool results_fit(RunState& run, const HostSite& site, void* const* buffers, int device) {
  for (std::size_t i = 0; i < site.results; ++i) {
    const DType dtype = site.leaves[site.operands + i].dtype;
    if (bit_width(dtype) >= 8) continue;
    const void* const values = buffers[site.operands + site.spec->masked + i];
    const std::size_t elements = site.buffer_bytes[site.operands + i],
                      bad = first_misfit(dtype, values, elements);
    if (bad == elements) continue;
    const auto [low, high] = range_of(dtype);
    run.fail(ErrorCode::bad_result, site, device, nullptr,
             fmt::format("element {} of result {} is {}, but the values of {} are from {} to {}",
                         bad, i, element_of(dtype, values, bad), to_string(dtype), low, high));
    return false;
  }
  return true;
}

bool fire_packed(RunState& run, const HostSite& site, void* const* buffers, int device) noexcept {
  const std::size_t in = site.operands + site.spec->masked;
  try {
    std::vector<void*> plain(buffers, buffers + site.buffers);
    std::vector<std::shared_ptr<void>> memory;
    for (std::size_t i = 0; i < site.leaves.size(); ++i) {
      if (bit_width(site.leaves[i].dtype) >= 8) continue;
      void*& place = plain[i < site.operands ? i : i + site.spec->masked];
      memory.push_back(detail::aligned_bytes(site.buffer_bytes[i]));
      if (i < site.operands)
        unpack(site.leaves[i].dtype, place, memory.back().get(), site.buffer_bytes[i]);
      place = memory.back().get();
    }
    bool ok = fire(run, site, plain.data(), device);
    ok = ok && results_fit(run, site, plain.data(), device);
    if (!ok && run.poison) zero_results(site, plain.data());
    for (std::size_t i = 0; i < site.results && (ok || run.poison); ++i) {
      const std::size_t leaf = site.operands + i;
      if (is_packed(site.leaves[leaf].dtype))
        pack(site.leaves[leaf].dtype, plain[in + i], buffers[in + i], site.buffer_bytes[leaf]);
    }
    return ok;
  } catch (...) {
    return keep_thrown(run, site, device);
  }
}

void zero_results(const HostSite& site, void* const* buffers) noexcept {
  for (std::size_t i = 0; i < site.results; ++i)
    std::memset(buffers[site.operands + site.spec->masked + i], 0,
                site.buffer_bytes[site.operands + i]);
}

}  // namespace postern::internal::host
