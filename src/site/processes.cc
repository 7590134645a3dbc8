// The calls that collectives over processes become.
#include "site/processes.h"

#include "core/check.h"
#include "site/own_functions.h"
#include "site/site.h"
#include "transform/walk.h"

namespace postern::internal {

Tensors at_processes(const clusters::Collective& collective, const std::string& name, TensorSpan x,
                     const Types& results) {
  SiteSpec site;
  site.name = name;
  site.place = PlaceScope::current();
  site.named = {process_call, process_attributes(collective)};
  site.function = own_functions.of_processes(site.named.attributes);
  site.operands = types_of(x);
  site.results = results;
  const bool asks = collective.operation == clusters::Operation::index ||
                    collective.operation == clusters::Operation::count;
  site.effect = asks ? Effect::pure : Effect::ordered;
  return at_site(std::move(site), x);
}

}  // namespace postern::internal
