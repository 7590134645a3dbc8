// Opening the package of pools when somebody makes one.
#include "run/pools.h"

#include "platform/package.h"

namespace postern {
using namespace internal;

static std::atomic<pools::Make*> maker{nullptr};

void pools::set_maker(Make* make) { maker = make; }

std::shared_ptr<detail::PoolCalls> detail::make_pool(std::unique_ptr<Simulators> simulators,
                                                     const SimulatorOptions& options, Place place) {
  return platforms::brought_by(maker, "pool", "Pool", "Pool: ")(std::move(simulators), options,
                                                                place);
}

}  // namespace postern
