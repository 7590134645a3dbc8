// Collectives over processes give what they give under vmap in one process: values, derivatives,
// batches, in loops and branches, for all dtypes.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "cluster_test.h"
#include "support.h"

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
      {"broadcast", [](Tensor v) { return broadcast(v, "host", size() - 1); }},
      {"scatter_from", [](Tensor v) { return scatter_from(v, "host", size() - 1); }},
      {"scatter_from tiled", [](Tensor v) { return scatter_from(v, "host", 0, 0, true); }},
      {"gather_to", [](Tensor v) { return gather_to(v, "host", size() - 1, 1); }},
      {"gather_to tiled", [](Tensor v) { return gather_to(v, "host", 0, 1, true); }},
      {"send_recv", [](Tensor v) { return send_recv(v, "host", 0, size() - 1); }},
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
  for (const Mode mode : all_modes)
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

/// Devices of a process and processes together, two devices each: as 2 * size() processes would.
TEST(Collectives, MeshesOfBothKinds) {
  if (devices().size() < 2) GTEST_SKIP() << "needs 2 devices";
  const std::int64_t n = 2 * size();
  const Tensor x = counting({n, n, 6}) * 0.5f;
  std::vector<std::pair<int, int>> around;
  for (int i = 0; i < n; ++i) around.emplace_back(i, static_cast<int>((i + n - 1) % n));
  const int last = static_cast<int>(n) - 1;
  using Over = std::function<Tensor(Tensor, AxisNames)>;
  const std::vector<std::pair<const char*, Over>> cases = {
      {"psum", [](Tensor v, AxisNames a) { return psum(v, a); }},
      {"pmean", [](Tensor v, AxisNames a) { return pmean(v, a); }},
      {"pmax", [](Tensor v, AxisNames a) { return pmax(v, a); }},
      {"all_gather", [](Tensor v, AxisNames a) { return all_gather(v, a, 1, true); }},
      {"reduce_scatter", [](Tensor v, AxisNames a) { return reduce_scatter(v, a, 0, true); }},
      {"all_to_all", [](Tensor v, AxisNames a) { return all_to_all(v, a, 0, 1); }},
      {"all_to_all back", [](Tensor v, AxisNames a) { return all_to_all(v, a, 0, 0); }},
      {"ppermute", [=](Tensor v, AxisNames a) { return ppermute(v, a, around); }},
      {"ppermute of two",
       [=](Tensor v, AxisNames a) {
         return ppermute(v, a, {{last, 0}});
       }},
      {"broadcast", [=](Tensor v, AxisNames a) { return broadcast(v, a, last - 1); }},
      {"scatter_from", [=](Tensor v, AxisNames a) { return scatter_from(v, a, last, 0, true); }},
      {"gather_to", [=](Tensor v, AxisNames a) { return gather_to(v, a, 1, 0, true); }},
      {"send_recv", [=](Tensor v, AxisNames a) { return send_recv(v, a, 1, last); }},
      {"axis_index", [](Tensor v, AxisNames a) { return v * convert(axis_index(a), DType::f32); }}};
  for (const bool devices_first : {false, true}) {
    // As P("host", "x") would have it: places along the axes in this order.
    const AxisNames order = devices_first ? AxisNames{"x", "host"} : AxisNames{"host", "x"};
    const auto both = [&](auto pick) {
      return jit([&](Tensor v) {
        std::vector<Tensor> out;
        for (const auto& [name, f] : cases) out.push_back(pick(f)(v));
        return out;
      })(x);
    };
    const Mesh mesh({{"host", processes}, {"x", 2}});
    const P rows(AxisNames{"host", "x"});
    const auto got = both([&](const Over& f) {
      return [&](Tensor v) {
        const auto slope = [&](Tensor part) {
          const auto loss = [&](Tensor p) { return sum(square(f(squeeze(p, {0}), order))); };
          return concatenate({expand_dims(reshape(f(squeeze(part, {0}), order), {-1}), 0),
                              reshape(grad(loss)(part), {1, n * 6})},
                             1);
        };
        return collect(shard_map(slope, mesh, {.in = {rows}, .out = {rows}})(v));
      };
    });
    // Element (h, x) of the array lies on device (h, x); its place along the axes is as they come.
    const auto place_of = [&](std::int64_t element) {
      return devices_first ? element % 2 * size() + element / 2 : element;
    };
    std::vector<std::int32_t> element_at(static_cast<std::size_t>(n)), place(element_at);
    for (std::int64_t e = 0; e < n; ++e) {
      element_at[static_cast<std::size_t>(place_of(e))] = static_cast<std::int32_t>(e);
      place[static_cast<std::size_t>(e)] = static_cast<std::int32_t>(place_of(e));
    }
    const auto want = both([&](const Over& f) {
      return [&](Tensor v) {
        const auto one = [&](Tensor part) {
          const auto loss = [&](Tensor p) { return sum(square(f(p, "all"))); };
          return concatenate({reshape(f(part, "all"), {-1}), reshape(grad(loss)(part), {-1})}, 0);
        };
        const Tensor in_order = take(v, tensor<std::int32_t>(element_at), 0);
        return take(vmap(one, {.axis_name = "all"})(in_order), tensor<std::int32_t>(place), 0);
      };
    });
    for (std::size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(fmt::format("{}{}", cases[i].first, devices_first ? ", devices first" : ""));
      expect_same(got[i], want[i], 1e-6);
    }
  }
}

TEST(Collectives, ThoseOverDevicesAloneOfAMeshOfProcesses) {
  if (devices().size() < 2) GTEST_SKIP() << "needs 2 devices";
  const Mesh mesh({{"host", processes}, {"x", 2}});
  const P rows(AxisNames{"host", "x"}), hosts("host");
  const Tensor x = counting({2 * size(), 3});
  const auto mean_here = [](Tensor v) { return pmean(v, "x"); };
  const Tensor means = mean(reshape(x, {size(), 2, 3}), {.axes = Dims{1}});
  const auto means_of = jit(shard_map(mean_here, mesh, {.in = {rows}, .out = {hosts}}));
  expect_same(collect(means_of(x)), means);
  const auto loss = [&](Tensor v) {
    return sum(square(shard_map(mean_here, mesh, {.in = {rows}, .out = {hosts}})(v)));
  };
  const Tensor slope = repeat(means, 2, 0);  // two elements have a half each of 2 * mean
  expect_same(collect(jit(grad(loss))(x)), slope);
}

/// What `f` gives for it, on processes that may have nobody to meet.
Tensor in_time(const Function& f, const Tensor& x) {
  auto run = jit(f).start_with({.deadline = 60s}, x);
  run.wait();
  return run.result();
}

/// Devices meet by their places in the mesh, whatever their numbers are on each process.
TEST(Collectives, MeshesWhoseDevicesHaveOtherNumbersElsewhere) {
  if (devices().size() < 2) GTEST_SKIP() << "needs 2 devices";
  const auto total = [](Tensor v) { return psum(v, "host"); };
  const auto times = static_cast<float>(size());
  const int odd = rank() % 2;
  const auto both = [&](std::vector<int> these) {
    return Mesh({{"host", processes}, {"x", 2}}, std::move(these));
  };
  const Tensor x = iota<float>(2);
  std::vector<Mesh> meshes = {both({odd, 1 - odd})};
  if (devices().size() >= 4) meshes.push_back(both({2 * odd, 2 * odd + 1}));
  for (const Mesh& mesh : meshes) {
    SCOPED_TRACE(to_string(mesh));
    const auto on_both = shard_map(total, mesh, {.in = {P("x")}, .out = {P("x")}});
    const auto on_one = shard_map(total, hosts());
    expect_same(in_time(on_both, x), x * times);
    expect_same(in_time([&](Tensor v) { return on_both(on_one(v)) + on_one(v); }, x),
                x * (times * times + times));
  }
  expect_same(in_time(shard_map(total, hosts()), device_put(x, odd)), x * times);
  {
    const DeviceScope scope(odd);
    expect_same(in_time(shard_map(total, hosts()), x), x * times);
  }
  // One device of each, which the mesh names.
  int device = -1;
  const auto looks = [&](Tensor v) {
    const auto where = [&](const CallInfo& info, View<const float> in, View<float> out) {
      device = info.device;
      std::copy(in.begin(), in.end(), out.begin());
    };
    return total(call({.effect = Effect::unordered}, v.type(), where, v));
  };
  expect_same(in_time(shard_map(looks, Mesh({{"host", processes}}, {odd})), x), x * times);
  EXPECT_EQ(device, odd);
}

TEST(Collectives, MeshesOfProcessesInOneProgramHaveOneOrder) {
  if (devices().size() < 2) GTEST_SKIP() << "needs 2 devices";
  const auto over = [](std::vector<int> these) {
    return shard_map([](Tensor v) { return psum(v, "host"); },
                     Mesh({{"host", processes}, {"x", 2}}, std::move(these)),
                     {.in = {P("x")}, .out = {P("x")}});
  };
  expect_says(refusal_of([&] {
                jit([&](Tensor v) { return over({1, 0})(over({0, 1})(v)); })(iota<float>(2));
              }),
              "must name their devices in one order");
}

/// Devices of the process, which meet nobody else, come to the end of the run in their own time.
TEST(Collectives, MeshesOfDevicesBesideOneOfProcesses) {
  if (devices().size() < 2) GTEST_SKIP() << "needs 2 devices";
  const auto total = shard_map([](Tensor v) { return psum(v, "host"); }, hosts());
  const auto here = shard_map([](Tensor v) { return psum(v, "x"); }, Mesh({{"x", 2}}),
                              {.in = {P("x")}, .out = {P()}});
  const auto f = jit([&](Tensor v, Tensor steps) {
    const Tensor slow = while_loop([&](Tensor k) { return k < steps; },
                                   [](Tensor k) { return k + 1.0f; }, Tensor(0.0f));
    return std::pair{here(total(v)), slow};
  });
  const Tensor steps(rank() == 0 ? 1.0f : 5e4f);  // some tenths of a second
  for (int i = 0; i < 3; ++i) {
    const auto [sum_here, slow] = f(counting({2}), steps);
    expect_same(sum_here, tensor<float>({static_cast<float>(size())}));
    expect_same(slow, steps);
  }
}

/// Several axes of processes: rows and columns of a grid.
TEST(Collectives, GridsOfProcesses) {
  if (size() != 4) GTEST_SKIP() << "needs 4 processes";
  const Mesh mesh({{"row", processes(2)}, {"column", processes(2)}});
  const Tensor x = counting({4, 6});
  const auto run = [&](const Function& f, const P& out) {
    return collect(jit(shard_map(f, mesh, {.in = {P("row", "column")}, .out = {out}}))(x));
  };
  expect_same(run([](Tensor v) { return all_gather(v, "column", 1, true); }, P("row")), x);
  expect_same(run([](Tensor v) { return psum(v, "row"); }, P(std::nullopt, "column")),
              slice_axis(x, 0, 0, 2) + slice_axis(x, 0, 2, 4));
  expect_same(run([](Tensor v) { return psum(sum(v), {"row", "column"}); }, P()), sum(x));
  const AxisNames both{"row", "column"};
  expect_same(run([&](Tensor v) { return broadcast(v, both, 2); }, P()),
              slice_axis(slice_axis(x, 0, 2, 4), 1, 0, 3));
  expect_same(run([&](Tensor v) { return gather_to(reshape(v, {-1}), both, 3, 0, true); }, P(both)),
              concatenate({zeros(type<float>({72})),
                           reshape(transpose(reshape(x, {2, 2, 2, 3}), {0, 2, 1, 3}), {-1})},
                          0));
  const Tensor whole = jit(shard_map([](Tensor v) { return v; }, mesh,
                                     {.in = {P("row", "column")}, .out = {P("row", "column")}}))(x);
  const Tensor on_two = collect(whole, 2);
  EXPECT_EQ(on_two.has_value(), rank() == 2);
  if (rank() == 2) expect_same(on_two, x);
}

/// Rows of a grid meet among themselves, each as often as it needs to.
TEST(Collectives, GridsWhoseRowsMeetMoreOrLessOften) {
  if (size() != 4) GTEST_SKIP() << "needs 4 processes";
  const Mesh mesh({{"row", processes(2)}, {"column", processes(2)}});
  const P both(AxisNames{"row", "column"});
  const auto run = [&](const Function& f) {
    return collect(jit(shard_map(f, mesh, {.in = {both}, .out = {both}}))(iota<float>(4) * 2.0f));
  };
  const auto in_row = [](Tensor v) { return psum(sum(v), "column"); };
  EXPECT_EQ(run([&](Tensor v) {
              const Tensor end = while_loop([&](Tensor c) { return in_row(c) < 20.0f; },
                                            [](Tensor c) { return c + 1.0f; }, v);
              return end + psum(end, {"row", "column"});
            }).to_vector<float>(),
            (std::vector<float>{49, 51, 49, 51}));
  EXPECT_EQ(run([&](Tensor v) {
              return cond(
                  in_row(v) > 5.0f, [](Tensor a) { return psum(a, "column"); },
                  [](Tensor a) { return a; }, v);
            }).to_vector<float>(),
            (std::vector<float>{0, 2, 10, 10}));
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
  const auto root = [](Tensor v) { return broadcast(v, "host", size()); };
  expect_says(refusal_of([&] {
                over_hosts(root)(counting({size(), 2}));
              }),
              fmt::format("broadcast: the root must be one of the {} devices", size()));
  const auto odd = [](Tensor v) { return scatter_from(v, "host", 0, 0, true); };
  if (size() > 1)
    expect_says(refusal_of([&] {
                  over_hosts(odd)(counting({size(), size() + 1}));
                }),
                "must be divisible by the");
  const Tensor narrow = convert(counting({size(), 2}), DType::s4);
  EXPECT_THROW(jit(over_hosts([](Tensor v) { return psum(v, "host"); }))(narrow), TypeError);
}

/// Nobody passes a barrier before all have come to it, with what they have done before.
TEST(Collectives, BarriersHoldEverybody) {
  const auto step = [](const char* name, int slow) {
    call({.name = name, .effect = Effect::ordered}, std::tuple<>(), [slow](const CallInfo& info) {
      if (info.process == slow) std::this_thread::sleep_for(2s);
    });
  };
  using Clock = std::chrono::steady_clock;
  Clock::time_point passed;
  const auto f = jit(shard_map(
      [&](Tensor v) {
        step("late", size() - 1);
        pbarrier("host");
        call({.name = "after", .effect = Effect::ordered}, std::tuple<>(),
             [&](const CallInfo&) { passed = Clock::now(); });
        return v;
      },
      hosts()));
  f(Tensor(1.0f)).block_until_ready();  // compiled, and everybody is here
  const auto begin = Clock::now();
  f(Tensor(1.0f)).block_until_ready();
  EXPECT_GE(passed - begin, 500ms);
  const auto batched = [](Tensor v) {
    pbarrier("host");
    return v;
  };
  expect_same(jit(over_vmap(batched))(counting({2})), counting({2}));
  expect_same(jit(over_hosts([&](Tensor v) {
                return grad([&](Tensor p) { return batched(p * p); })(v);
              }))(counting({size()})),
              counting({size()}) * 2.0f);
}

TEST(Collectives, MoreThanTwoBillionElements) {
  if (!std::getenv("POSTERN_LARGE")) GTEST_SKIP() << "POSTERN_LARGE=1 sends 2 GiB";
  if (size() < 2) GTEST_SKIP() << "needs several processes";
  const std::int64_t n = (std::int64_t{1} << 31) + 16;
  const auto bytes = static_cast<std::size_t>(n);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  static_cast<std::uint8_t*>(memory)[bytes - 1] = static_cast<std::uint8_t>(7 + rank());
  const Tensor x = Tensor::borrow(type<std::uint8_t>({n}), memory, [=] { munmap(memory, bytes); });
  const auto end = [&](Tensor v) {
    return slice_axis(broadcast(v, "host", size() - 1), 0, n - 2, n);
  };
  EXPECT_EQ(jit(shard_map(end, hosts()))(x).to_vector<std::uint8_t>(),
            (std::vector<std::uint8_t>{0, static_cast<std::uint8_t>(6 + size())}));
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
