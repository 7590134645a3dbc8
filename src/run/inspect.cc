// Compiles the program with what is inspected as further results, and tells what XLA chose.
#include "run/inspect.h"

#include "core/check.h"
#include "run/partitioned.h"
#include "run/sharded.h"
#include "shard/inspect_sharding.h"
#include "shard/shard_map.h"
#include "transform/flatten.h"

namespace postern::internal::run {

void tell_shardings(const Lowerable& of, const Module& module) {
  const auto inspects = [](const Equation& e) {
    return any_equation(
        e, [](const Equation& inner) { return inner.primitive == &inspect_sharding_p; });
  };
  if (!uses(*of.program, inspect_sharding_p)) return;
  Program program = flattened(
      *of.program, [&](const Equation& e) { return e.primitive->transparent && inspects(e); });
  std::vector<const Equation*> inspected;
  for (const Equation& e : program.equations) {
    if (!inspects(e)) continue;
    PlaceScope at(e.place);
    check(e.primitive == &inspect_sharding_p,
          "inspect_sharding inside {}: only of values outside of loops and branches can be told "
          "how they are spread",
          e.primitive->name);
    inspected.push_back(&e);
  }
  if (!module.partitioned()) {
    // A mesh of one device may name it.
    const int named = module.devices.empty() ? 0 : module.devices.front();
    const Sharding here = on_one_device(named > 0 ? named : default_device());
    for (const Equation* e : inspected) inspector_of (*e)(here);
    return;
  }
  const std::size_t results = program.outputs.size();
  for (const Equation* e : inspected) program.outputs.push_back(e->first);
  Lowerable asked = of;
  asked.results_on.resize(program.outputs.size());  // none for what is inspected: as XLA chooses
  asked.program = std::make_shared<const Program>(program);
  const std::vector<Sharding> chosen = chosen_shardings(*lower(asked));
  for (std::size_t i = 0; i < inspected.size(); ++i)
    inspector_of (*inspected[i])(chosen[results + i]);
}

}  // namespace postern::internal::run
