// Entering functions on copies.
#include "host/job.h"

#include <algorithm>
#include <cstring>

#include "core/value.h"
#include "host/enter.h"
#include "host/run_end.h"

namespace postern::internal::host {

Job::Job(const Invocation& i)
    : site(&i.site),
      spec(site->spec),
      owner(i.listener ? *i.listener : i.run.owner),
      device(i.device),
      depth(nesting() ? nesting()->depth + 1 : 1),
      delivery(in_delivery()),
      around(i.run.self()),
      floats(i.run.floats),
      inside(surrounding_runs()),
      info(i.info(this)) {
  if (!i.run.outside) inside.push_back({i.run.name().started, i.run.lane_run});
  for (const std::size_t bytes : site->called_bytes) {
    memory.push_back(detail::aligned_bytes(bytes));
    data.push_back(memory.back().get());
  }
  for (std::size_t leaf = 0; leaf < site->operands; ++leaf)
    std::memcpy(data[leaf], i.data[leaf], site->called_bytes[leaf]);
  if (i.mask.empty()) return;
  mask = std::make_unique<bool[]>(i.mask.size());
  std::ranges::copy(i.mask, mask.get());
  info.mask = {mask.get(), i.mask.size()};
}

Ended Job::enter() const noexcept {
  const Beginning nested{
      {.site = site, .device = device, .depth = depth, .delivery = delivery}, inside, around};
  const NestingScope scope(&nested);
  floats.set();
  Ended how;
  how.ok = enter_function(*site,
                          {site->called.data(), data.data(), site->operands,
                           data.size() - site->operands, &info, &site->declared},
                          how.error, how.code);
  return how;
}

}  // namespace postern::internal::host
