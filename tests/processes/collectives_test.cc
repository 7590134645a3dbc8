// Collectives over processes give what they give under vmap in one process: values, derivatives,
// batches, in loops and branches, for all dtypes.
#include <unistd.h>

#include <filesystem>

#include "processes_test.h"

namespace postern::test {
namespace {

struct Case {
  const char* name;
  Function f;  // of an array [size, 6] of each process
};

std::vector<std::pair<int, int>> to_the_next(bool around) {
  std::vector<std::pair<int, int>> out;
  for (int i = 0; i + 1 < size(); ++i) out.emplace_back(i, i + 1);
  if (around) out.emplace_back(size() - 1, 0);
  return out;
}

std::vector<Case> linear_cases() {
  return {
      {"psum", [](Tensor v) { return psum(v, "host"); }},
      {"all_gather", [](Tensor v) { return all_gather(v, "host", 1); }},
      {"all_gather tiled", [](Tensor v) { return all_gather(v, "host", 1, true); }},
      {"all_gather tiled along 0", [](Tensor v) { return all_gather(v, "host", 0, true); }},
      {"reduce_scatter", [](Tensor v) { return reduce_scatter(v, "host"); }},
      {"reduce_scatter tiled", [](Tensor v) { return reduce_scatter(v, "host", 0, true); }},
      {"all_to_all", [](Tensor v) { return all_to_all(v, "host", 0, 1); }},
      {"ppermute around", [](Tensor v) { return ppermute(v, "host", to_the_next(true)); }},
      {"ppermute", [](Tensor v) { return ppermute(v, "host", to_the_next(false)); }},
      {"ppermute of nobody", [](Tensor v) { return ppermute(v, "host", {}); }},
  };
}
std::vector<Case> all_cases() {
  std::vector<Case> out = linear_cases();
  out.push_back({"pmax", [](Tensor v) { return pmax(v, "host"); }});
  out.push_back({"pmin", [](Tensor v) { return pmin(v, "host"); }});
  out.push_back(
      {"axis_index", [](Tensor v) { return v + convert(axis_index("host"), v.dtype()); }});
  return out;
}

/// Both ways to run them, each as one program.
void expect_cases(const std::vector<Case>& cases, const Tensor& x, std::string_view what) {
  const auto all = [&](auto over) {
    return jit([&](Tensor v) {
      std::vector<Tensor> out;
      for (const Case& c : cases) out.push_back(over(c.f)(v));
      return out;
    })(x);
  };
  const std::vector<Tensor> got = all(over_hosts), want = all(over_vmap);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(fmt::format("{} of {}", cases[i].name, what));
    expect_same(got[i], want[i]);
  }
}

TEST(Collectives, AllDtypes) {
  // As one program for each dtype: what takes time is to compile them.
  for (const DType dtype :
       {DType::s8, DType::s16, DType::s32, DType::s64, DType::u8, DType::u16, DType::u32,
        DType::u64, DType::f16, DType::bf16, DType::f32, DType::f64, DType::f8e4m3fn})
    expect_cases(all_cases(),
                 convert(remainder(counting({size(), size(), 6}), Tensor(7.0f)), dtype),
                 to_string(dtype));
}

TEST(Collectives, ComplexNumbers) {
  const Tensor x = complex(counting({size(), size(), 2}), counting({size(), size(), 2}) * 2.0f);
  for (const Case& c : linear_cases()) {
    SCOPED_TRACE(c.name);
    const Tensor got = jit(over_hosts(c.f))(x), want = over_vmap(c.f)(x);
    expect_same(real(got), real(want));
    expect_same(imag(got), imag(want));
  }
}

TEST(Collectives, LongAndEmptyArrays) {
  for (const std::int64_t n : {0, 1, 513, 100'003})
    expect_cases(all_cases(), remainder(counting({size(), size(), n}), Tensor(251.0f)),
                 fmt::format("{} elements", n));
}

TEST(Collectives, AtOnceWithoutJit) {
  const Tensor x = counting({size(), size(), 6});
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    expect_same(over_hosts(c.f)(x), over_vmap(c.f)(x));
  }
}

TEST(Collectives, InEveryMode) {
  const Tensor x = counting({size(), size(), 6});
  const Function f = [](Tensor v) { return psum(v, "host") * 2.0f; };
  for (const Mode mode : {Mode::compiled, Mode::staged, Mode::evaluate})
    expect_same(jit(over_hosts(f), {.mode = mode})(x), over_vmap(f)(x));
}

TEST(Collectives, DerivativesOfDerivatives) {
  const Tensor x = counting({size(), size(), 6}) * 0.01f,
               w = counting({size(), size(), 6}) * 0.02f + 1.0f;
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    const auto loss = [&](auto over) {
      return [=](Tensor v) {
        const Tensor y = over([=](Tensor p) { return c.f(sin(p)); })(v);
        return sum(y * y * y);
      };
    };
    const auto second = [&](auto over) {
      return [=](Tensor v) { return sum(grad(loss(over))(v) * w); };
    };
    expect_same(jit(grad(loss(over_hosts)))(x), jit(grad(loss(over_vmap)))(x), 1e-5);
    expect_same(jit(grad(second(over_hosts)))(x), jit(grad(second(over_vmap)))(x), 1e-4);
    const auto [y, dy] =
        jit([&](Tensor v) { return jvp(over_hosts(c.f), std::tuple{v}, std::tuple{w}); })(x);
    expect_same(y, over_vmap(c.f)(x), 1e-6);
    expect_same(dy, std::get<1>(jvp(over_vmap(c.f), std::tuple{x}, std::tuple{w})), 1e-5);
  }
}

TEST(Collectives, UnderVmap) {
  const Tensor x = counting({3, size(), size(), 6});
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    expect_same(jit(vmap(over_hosts(c.f)))(x), vmap(over_vmap(c.f))(x));
    const Function inside = [&](Tensor v) { return vmap(c.f, {.in_axes = 1})(stack({v, v}, 1)); };
    expect_same(jit(over_hosts(inside))(counting({size(), size(), 6})),
                over_vmap(inside)(counting({size(), size(), 6})));
  }
}

TEST(Collectives, InLoopsAndBranches) {
  const Tensor x = counting({size(), 4}) * 0.125f;
  const Function scanned = [](Tensor v) {
    return fori_loop(
        0, 5, [](Tensor, Tensor carry) { return psum(carry * 0.5f, "host") * 0.25f + carry; }, v);
  };
  const Function looped = [](Tensor v) {
    return while_loop([](Tensor c) { return less(psum(sum(c), "host"), 500.0f); },
                      [](Tensor c) { return c + pmax(c, "host") + 1.0f; }, v);
  };
  const Function branched = [](Tensor v) {
    return cond(
        greater(psum(sum(v), "host"), 1.0f), [](Tensor a) { return psum(a, "host"); },
        [](Tensor a) { return a * 3.0f; }, v);
  };
  for (const Function& f : {scanned, looped, branched})
    expect_same(jit(over_hosts(f))(x), over_vmap(f)(x), 1e-6);
  const auto loss = [](auto over) { return [=](Tensor v) { return sum(over(v)); }; };
  expect_same(jit(grad(loss(over_hosts(scanned))))(x), jit(grad(loss(over_vmap(scanned))))(x),
              1e-6);
}

/// Devices of a process and processes together: two devices each.
TEST(Collectives, MeshesOfBothKinds) {
  if (devices().size() < 2) GTEST_SKIP() << "needs 2 devices";
  const Mesh mesh({{"host", processes}, {"x", 2}});
  const std::int64_t n = 2 * size();
  const P rows(AxisNames{"host", "x"});
  const auto run = [&](const Function& f, const P& out) {
    return jit(shard_map(f, mesh, {.in = {rows}, .out = {out}}))(counting({n, 2 * n}));
  };
  const Tensor x = counting({n, 2 * n}), whole = sum(x, {.axes = Dims{0}, .keep_dims = true});
  const AxisNames both{"host", "x"};
  expect_same(run([&](Tensor v) { return psum(v, both); }, P()), whole);
  expect_same(run([&](Tensor v) { return all_gather(v, both, 0, true); }, P()), x);
  expect_same(
      run([&](Tensor v) { return reduce_scatter(v, both, 1, true); }, P(std::nullopt, both)),
      whole);
  expect_same(run([&](Tensor v) { return psum(psum(v, "x"), "host"); }, P()), whole);
  expect_same(run([&](Tensor v) { return v * 0.0f + convert(axis_index(both), DType::f32); }, rows),
              broadcast_to(reshape(iota<float>(n), {n, 1}), {n, 2 * n}));
  EXPECT_THROW(run([&](Tensor v) { return ppermute(v, both, {{0, 1}}); }, rows), TypeError);
}

/// Several axes of processes: rows and columns of a grid.
TEST(Collectives, GridsOfProcesses) {
  if (size() != 4) GTEST_SKIP() << "needs 4 processes";
  const Mesh mesh({{"row", processes(2)}, {"column", processes(2)}});
  const Tensor x = counting({4, 6});
  const auto run = [&](const Function& f, const P& out) {
    return jit(shard_map(f, mesh, {.in = {P("row", "column")}, .out = {out}}))(x);
  };
  expect_same(run([](Tensor v) { return all_gather(v, "column", 1, true); }, P("row")), x);
  expect_same(run([](Tensor v) { return psum(v, "row"); }, P(std::nullopt, "column")),
              slice_axis(x, 0, 0, 2) + slice_axis(x, 0, 2, 4));
  expect_same(run([](Tensor v) { return psum(sum(v), {"row", "column"}); }, P()), sum(x));
}

TEST(Collectives, WhatIsRefused) {
  EXPECT_THROW(Mesh({{"host", processes(0)}, {"x", 0}}), TypeError);
  const Mesh other({{"host", processes(size() + 1)}});
  const auto f = [](Tensor v) { return psum(v, "host"); };
  try {
    jit(shard_map(f, other))(Tensor(1.0f));
    ADD_FAILURE() << "the cluster has other processes";
  } catch (const TypeError& e) {
    EXPECT_NE(std::string(e.what()).find(fmt::format("the cluster has {}", size())),
              std::string::npos)
        << e.what();
  }
  EXPECT_THROW(device_put(Tensor(1.0f), Sharding(hosts(), P())), TypeError);
  const Tensor narrow = convert(counting({size(), 2}), DType::s4);
  EXPECT_THROW(jit(over_hosts([](Tensor v) { return psum(v, "host"); }))(narrow), TypeError);
}

TEST(Collectives, SavedPrograms) {
  const Function f = [](Tensor v) { return psum(sin(v), "host"); };
  const Tensor x = counting({size(), 6});
  const auto file = std::filesystem::temp_directory_path() / fmt::format("postern-{}", getpid());
  save(file, jit(over_hosts(f)).lower(x));
  const Loaded loaded = load(file);
  std::filesystem::remove(file);
  expect_same(loaded.run({x})[0], jit(over_vmap(f))(x), 1e-6);
}

TEST(Collectives, CallsKnowTheirProcess) {
  const auto told = [](const CallInfo& info, float v) {
    return v + static_cast<float>(info.process);
  };
  const Tensor y = jit(over_hosts([&](Tensor v) { return call({}, v.type(), told, v); }))(
      zeros_like(counting({size()})));
  expect_same(y, iota<float>(size()));
}

}  // namespace
}  // namespace postern::test
