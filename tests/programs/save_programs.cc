// Saves the programs that clients in other languages are tested with: save_programs FOLDER.
#include <postern/postern.h>

#include <filesystem>

namespace pn = postern;

namespace {

/// Effects and loops as other frameworks have them: what only an effect keeps in the program, and
/// loops that end by what they compute.
void save_effects(const std::filesystem::path& folder, const pn::Tensor& x) {
  using pn::Tensor;
  pn::save(folder / "effects.mlir", pn::jit([](Tensor v) {
                                      const auto ordered = [&](const char* name, Tensor w) {
                                        return pn::call({.effect = pn::Effect::ordered}, w.type(),
                                                        pn::Named{name}, w);
                                      };
                                      ordered("demo.first", v);  // nobody uses it
                                      pn::tap({.ordered = false}, v * 2.0f, pn::Named{"demo.log"});
                                      return ordered("demo.second", v + 1.0f);
                                    }).lower(x));
  pn::save(folder / "pair.mlir", pn::jit([](Tensor v) {
                                   pn::tap(std::tuple{v, pn::sum(v)}, pn::Named{"demo.pair"});
                                   return v;
                                 }).lower(x));
  pn::save(folder / "while_taps.mlir",
           pn::jit([](Tensor v) {
             return std::get<1>(pn::while_loop([](Tensor i, Tensor) { return i < 4; },
                                               [](Tensor i, Tensor w) {
                                                 pn::tap(std::tuple{i, w}, pn::Named{"demo.pair"});
                                                 return std::tuple{i + 1, w * 2.0f};
                                               },
                                               std::tuple{Tensor(std::int32_t{0}), v}));
           }).lower(x));
  pn::save(folder / "while_calls.mlir",
           pn::jit([](Tensor v) {
             return pn::while_loop(
                 [](Tensor w) { return pn::sum(w) < 100.0f; },
                 [](Tensor w) { return pn::call(w.type(), pn::Named{"demo.scale"}, w); }, v);
           }).lower(x));
  pn::save(folder / "prints_often.mlir", pn::jit([](Tensor v) {
                                           return pn::fori_loop(
                                               0, 100'000,
                                               [](Tensor i, Tensor w) {
                                                 pn::print("step {}", i);
                                                 return w + 1.0f;
                                               },
                                               v);
                                         }).lower(x));
}

/// Hooks: all may have no listener, but for one that has a default.
void save_hooks(const std::filesystem::path& folder, const pn::Tensor& x) {
  using pn::Tensor;
  const auto saved = [&](const char* name, auto f) {
    pn::save(folder / (std::string(name) + ".mlir"), pn::jit(f).lower(x));
  };
  const auto shown = [](const char* name, const Tensor& v) {
    return pn::hook(name, v, {.live = true});
  };
  saved("hooks", [=](Tensor v) {
    return pn::hook("product", shown("sum", v + 1.0f) * 2.0f, pn::Named{"demo.log"});
  });
  saved("hooks_nested", [=](Tensor v) {
    const auto step = [=](Tensor i, Tensor w) {
      shown("step", i);
      return pn::cond(
          pn::sum(w) < 20.0f, [=](Tensor u) { return shown("small", u * 2.0f); },
          [=](Tensor u) { return shown("large", u + 1.0f); }, w);
    };
    return pn::cond(
        pn::sum(v) > 0.0f, [=](Tensor u) { return pn::fori_loop(0, 4, step, u); },
        [=](Tensor u) { return shown("negative", u); }, v);
  });
  pn::save(folder / "step.mlir",
           pn::jit([=](Tensor v) { return shown("product", v * 2.0f); }).lower(Tensor(3.0f)));
  saved("hooks_pair", [](Tensor v) {
    const auto [w, sum] = pn::hook("pair", std::tuple{v, pn::sum(v)}, {.live = true});
    return w * sum;
  });
  saved("hooks_grad", [=](Tensor v) {
    const auto loss = [=](Tensor w) { return pn::sum(shown("square", w * w)); };
    return shown("gradient", pn::grad(loss)(v));
  });
  saved("hooks_vmap", [=](Tensor v) {
    return pn::vmap([=](Tensor element) { return shown("element", element * 2.0f); })(v);
  });
  saved("hooks_async", [](Tensor v) {
    return pn::fori_loop(
        0, 400,
        [](Tensor, Tensor w) {
          return pn::hook("seen", w + 1.0f, {.mode = pn::TapMode::async, .live = true});
        },
        v);
  });
  // Prints behind a hook for which it waits, beside one for which it does not.
  saved("hooks_print", [=](Tensor v) {
    return pn::fori_loop(
        0, 3,
        [=](Tensor, Tensor w) {
          pn::hook("seen", w, {.mode = pn::TapMode::async, .live = true});
          const Tensor told = shown("told", w + 1.0f);
          pn::print("told {}", pn::sum(told));
          return told;
        },
        v);
  });
}

}  // namespace

int main(int, char** arguments) {
  const std::filesystem::path folder = arguments[1];
  const pn::Tensor x = pn::tensor<float>({1, 2, 3}), number(2.0);
  const auto scaled = [](const pn::Tensor& v, const pn::CallOptions& options = {.name = "scale"}) {
    return pn::call(options, v.type(), pn::Named{"demo.scale", {{"factor", 3.0}}}, v);
  };
  save_effects(folder, x);
  save_hooks(folder, x);
  auto plain = pn::jit([](pn::Tensor v) { return v * 2.0f + 1.0f; });
  pn::save(folder / "plain.mlir", plain.lower(x));
  pn::save(folder / "large.mlir", plain.lower(pn::abstract(pn::type<float>({512, 1024}))));
  pn::save(folder / "calls.mlir",
           pn::jit([&](pn::Tensor v) {
             return pn::sum(pn::tap({.name = "scaled"}, scaled(v), pn::Named{"demo.log"}));
           }).lower(x));
  pn::save(folder / "async.mlir", pn::jit([&](pn::Tensor v) {
                                    return pn::tap({.name = "seen", .mode = pn::TapMode::async}, v,
                                                   pn::Named{"demo.log"});
                                  }).lower(pn::abstract(pn::type<float>({100'000}))));
  pn::save(folder / "async_loop.mlir", pn::jit([&](pn::Tensor v) {
                                         return pn::fori_loop(
                                             0, 400,
                                             [](pn::Tensor, pn::Tensor w) {
                                               return pn::tap(
                                                   {.name = "seen", .mode = pn::TapMode::async}, w,
                                                   pn::Named{"demo.log"});
                                             },
                                             scaled(v));
                                       }).lower(pn::abstract(pn::type<float>({20'000}))));
  pn::save(folder / "two_taps.mlir", pn::jit([](pn::Tensor v) {  // of one function
                                       pn::tap({.name = "a"}, v, pn::Named{"demo.log"});
                                       return pn::tap({.name = "b"}, v, pn::Named{"demo.log"});
                                     })
                                         .lower(x));
  pn::save(folder / "limited.mlir",
           pn::jit([&](pn::Tensor v) {
             return scaled(v, {.name = "late", .timeout = std::chrono::milliseconds(50)});
           }).lower(x));
  pn::save(folder / "loop.mlir",
           pn::jit([&](pn::Tensor v) {
             return pn::fori_loop(
                 0, 1000, [&](pn::Tensor, pn::Tensor w) { return scaled(w) / 3.0f; }, v);
           }).lower(x));
  pn::save(folder / "started.mlir", pn::jit([&](pn::Tensor v) {  // open at once
                                      return pn::fori_loop(
                                          0, 64,
                                          [&](pn::Tensor, pn::Tensor w) {
                                            pn::start_call({.effect = pn::Effect::unordered},
                                                           w.type(), pn::Named{"demo.scale"}, w);
                                            return w + 1.0f;
                                          },
                                          v);
                                    })
                                        .lower(x));
  pn::save(folder / "called.mlir", pn::jit([&](pn::Tensor v) { return scaled(v); }).lower(x));
  pn::save(folder / "called_large.mlir", pn::jit([&](pn::Tensor v) {
                                           return scaled(v);
                                         }).lower(pn::abstract(pn::type<float>({262'144}))));
  // What a tap shows in each step, behind a count of the steps that have begun.
  const auto steps = [](bool counted) {
    return [counted](pn::Tensor v) {
      return v + pn::fori_loop(
                     0, 100,
                     [counted](pn::Tensor i, pn::Tensor sum) {
                       if (counted) pn::tap({.name = "count"}, i, pn::Named{"demo.count"});
                       pn::tap({.name = "seen"}, i, pn::Named{"demo.log"});
                       return sum + 1.0f;
                     },
                     pn::Tensor(-1.0f));
    };
  };
  pn::save(folder / "taps.mlir", pn::jit(steps(false)).lower(x));
  pn::save(folder / "counted_taps.mlir", pn::jit(steps(true)).lower(x));
  // A tap in each branch, two in order behind it, and one whose value nobody uses.
  pn::save(folder / "branches.mlir",
           pn::jit([](pn::Tensor v) {
             const auto shown = [](const char* name) {
               return [name](pn::Tensor w) { return pn::tap(w * 2.0f, pn::Named{name}); };
             };
             pn::Tensor y =
                 pn::cond(pn::sum(v) > 0.0f, shown("demo.positive"), shown("demo.negative"), v);
             pn::tap(y + 1.0f, pn::Named{"demo.first"});
             pn::tap(y + 2.0f, pn::Named{"demo.second"});
             return y;
           }).lower(x));
  pn::save(folder / "prints.mlir", pn::jit([](pn::Tensor v) {
                                     pn::print("sum {:.1f}", pn::sum(v));
                                     return v + 1.0f;
                                   }).lower(x));
  // Of every number of rows.
  pn::save(folder / "open.mlir", pn::jit([](pn::Tensor v) {
                                   return std::pair{pn::mean(v, 0), pn::cumsum(v, 0)};
                                 }).lower(pn::abstract(pn::type<float>({pn::any("n"), 3}))));
  // Several results of several types, a number, and nothing at all.
  pn::save(
      folder / "mixed.mlir",
      pn::jit([](pn::Tensor v, pn::Tensor n) {
        const auto [both, count, none] = pn::call(
            {.name = "mixed"},
            std::tuple{pn::type<double>({2, 3}), pn::type<std::int32_t>(), pn::type<bool>({0, 2})},
            pn::Named{"demo.mixed", {{"name", "mixed"}, {"axes", std::vector<std::int64_t>{0, 1}}}},
            v, n);
        return std::tuple{both + 1.0, count + 1, none};
      }).lower(x, number));
}
