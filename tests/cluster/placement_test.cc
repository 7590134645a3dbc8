// Tensors that lie over processes: put there, looked at, computed with, collected.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>

#include "cluster_test.h"

namespace postern::test {
namespace {

Sharding rows() { return {hosts(), P("host")}; }
std::int64_t n() { return size(); }
Tensor psum_of(const Tensor& x) {
  return jit(shard_map([](Tensor v) { return psum(v, "host"); }, hosts()))(x);
}

TEST(Placement, OfOneWholeThatAllGive) {
  const Tensor x = counting({2 * n(), 3}), y = device_put(x, rows());
  EXPECT_EQ(y.dims(), x.dims());
  ASSERT_TRUE(sharding_of(y));
  EXPECT_EQ(*sharding_of(y), rows());
  const std::vector<Shard> here = shards_of(y);
  ASSERT_EQ(here.size(), 1u);
  EXPECT_EQ(here[0].range[0], (IndexRange{2 * rank(), 2 * rank() + 2}));
  EXPECT_EQ(here[0].range[1], (IndexRange{0, 3}));
  expect_same(here[0].data, slice_axis(x, 0, 2 * rank(), 2 * rank() + 2));
  expect_same(collect(y), x);
}

TEST(Placement, OfPartsThatEachGives) {
  const Tensor mine = counting({1, 3}) + static_cast<float>(10 * rank());
  const Tensor y = device_put(mine, rows(), Gives::part);
  EXPECT_EQ(to_string(y.type()), fmt::format("f32[{},3]", n()));
  std::vector<Tensor> parts;
  for (int r = 0; r < size(); ++r) parts.push_back(counting({1, 3}) + static_cast<float>(10 * r));
  expect_same(collect(y), concatenate(parts, 0));
  const Tensor same = device_put(mine, Sharding(hosts(), P()), Gives::part);
  expect_same(same, mine);  // nothing of it is elsewhere
}

TEST(Placement, OnOneProcess) {
  const std::pair<Tensor, Tensor> both{counting({n()}), counting({2, n()})};
  const auto put = std::pair{device_put(both.first, rows()),
                             device_put(both.second, Sharding(hosts(), P(std::nullopt, "host")))};
  for (int to = 0; to < size(); ++to) {
    const auto got = collect(put, to);
    EXPECT_EQ(got.first.has_value(), rank() == to);
    if (rank() != to) continue;
    expect_same(got.first, both.first);
    expect_same(got.second, both.second);
  }
  expect_says(refusal_of([&] { static_cast<void>(collect(put, size())); }), "collect: the rank");
  // Each keeps what is no part of a whole.
  const auto beside = collect(std::pair{put.first, counting({2})}, 0);
  EXPECT_EQ(beside.first.has_value(), rank() == 0);
  expect_same(beside.second, counting({2}));
}

TEST(Placement, OverDevicesToo) {
  if (devices().size() < 2) GTEST_SKIP() << "needs 2 devices";
  const Mesh mesh({{"host", processes}, {"x", 2}});
  for (const P& spec : {P(AxisNames{"host", "x"}), P("host", "x"), P("x", "host"), P("x"), P()}) {
    SCOPED_TRACE(to_string(spec));
    const Tensor x = counting({2 * n(), 2 * n()}), y = device_put(x, Sharding(mesh, spec));
    const std::vector<Shard> here = shards_of(y);
    ASSERT_EQ(here.size(), 2u);
    for (const Shard& s : here)
      expect_same(s.data, slice_axis(slice_axis(x, 0, s.range[0].begin, s.range[0].end), 1,
                                     s.range[1].begin, s.range[1].end));
    expect_same(collect(y), x);
    const Tensor z = jit([](Tensor v) { return v * 2.0f + v; })(y);
    expect_same(collect(z), x * 3.0f);
  }
  const auto other = [&] {
    device_put(counting({2 * n()}), Sharding(mesh, P(AxisNames{"x", "host"})));
  };
  expect_says(refusal_of(other), "is one of processes and must come before");
}

TEST(Placement, WhatIsElsewhereIsAnErrorThatSaysCollect) {
  if (size() < 2) GTEST_SKIP() << "needs several processes";
  const Tensor x = device_put(counting({n(), 4}), rows());
  const std::vector<std::function<void()>> all = {
      [&] { x.to_vector<float>(); },
      [&] { sum(x); },
      [&] { jit([](Tensor v) { return sum(v); })(x); },
      [&] { jit([](Tensor v) { return matmul(v, transpose(v)); })(x); },
      [&] { tap(x, [](View<const float>) {}); },
      [&] { print("{}", x); },
      [&] { device_put(x, Sharding(hosts(), P(std::nullopt, "host"))); },
      [&] { jit(shard_map([](Tensor v) { return v; }, hosts()))(x); },
      [&] {
        jit([&](Tensor v) {
          return sum(shard_map([](Tensor p) { return p; }, hosts(),
                               {.in = {P("host")}, .out = {P("host")}})(v));
        })(counting({n(), 4}));
      },
      [&] {
        scan(
            [](Tensor c, Tensor row) {
              return std::pair{c + row, row};
            },
            zeros(type<float>({4})), x);
      }};
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    const std::string text = refusal_of(all[i]);
    expect_says(text, "collect(x)");
    expect_says(text, "P(host)");
  }
  const std::string text = refusal_of(all[2]);
  expect_says(text, "XLA on CPUs cuts no program over processes");
  expect_says(text, "placement_test.cc");
}

TEST(Placement, OperationsElementByElement) {
  const Tensor x = counting({n(), 3}), y = device_put(x, rows());
  expect_same(collect(sin(y) * y + 1.0f), sin(x) * x + 1.0f);
  expect_same(collect(y + x), x + x);  // of a whole each takes its part
  expect_same(collect(transpose(y)), transpose(x));
  expect_same(collect(y + counting({3})), x + counting({3}));
  const auto f = jit([](Tensor v, Tensor w) {
    return std::pair{where(v > 2.0f, v, w), collect(v)};
  });
  const auto [a, b] = f(y, x * 2.0f);
  if (size() > 1) {
    EXPECT_EQ(sharding_of(a), rows());
  }
  expect_same(collect(a), where(x > 2.0f, x, x * 2.0f));
  expect_same(b, x);
}

/// Training inside of one program, with data that nobody has as a whole.
TEST(Placement, InLoopsAndBranches) {
  const Tensor x = counting({n(), 2}) * 0.1f, data = device_put(x, rows());
  const auto residual = [](Tensor w, Tensor part) {
    return psum(sum(square(sum(part * w, {.axes = Dims{1}}) - 1.0f)), "host");
  };
  const auto loss = shard_map(residual, hosts(), {.in = {P(), P("host")}, .out = {P()}});
  const auto train = [&](auto f) {
    return [=](Tensor w, Tensor v) {
      return fori_loop(
          0, 10, [&](Tensor, Tensor now) { return now - 0.02f * grad(f)(now, v); }, w);
    };
  };
  const auto alone = [](Tensor w, Tensor v) {
    return sum(square(sum(v * w, {.axes = Dims{1}}) - 1.0f));
  };
  const Tensor w = counting({2});
  expect_same(jit(train(loss))(w, data), jit(train(alone))(w, x), 1e-5);

  // A carry that is cut over processes, in a while, a scan and a cond.
  const auto step = shard_map([](Tensor p) { return p + psum(p, "host") * 0.25f; }, hosts(),
                              {.in = {P("host")}, .out = {P("host")}});
  const auto step_alone = [](Tensor v) {
    return v + sum(v, {.axes = Dims{0}, .keep_dims = true}) * 0.25f;
  };
  const auto all = [](auto f) {
    return [=](Tensor v) {
      const Tensor looped = while_loop([](std::pair<Tensor, Tensor> c) { return c.second < 3; },
                                       [&](std::pair<Tensor, Tensor> c) {
                                         return std::pair{f(c.first), c.second + 1};
                                       },
                                       std::pair{v, Tensor(0)})
                                .first;
      const Tensor branched = cond(
          Tensor(true), [&](Tensor a) { return f(a); }, [](Tensor a) { return a * 2.0f; }, looped);
      const auto [carry, ys] = scan(
          [&](Tensor c, Tensor k) {
            return std::pair{f(c) * k, c + k};
          },
          branched, tensor<float>({0.5f, 0.25f}));
      return std::pair{carry, sum(collect(ys)) + sum(collect(checkpoint(f)(carry)))};
    };
  };
  const auto got = jit(all(step))(data), want = jit(all(step_alone))(x);
  if (size() > 1) {
    EXPECT_EQ(sharding_of(got.first), rows());
  }
  expect_same(collect(got.first), want.first, 1e-5);
  expect_same(got.second, want.second, 1e-5);
  const auto slope = [&](auto f) { return jit(grad([=](Tensor v) { return all(f)(v).second; })); };
  expect_same(collect(slope(step)(data)), slope(step_alone)(x), 1e-5);
}

TEST(Placement, DerivativesLieAsTheirValues) {
  const Tensor x = counting({n(), 3}), y = device_put(x, rows());
  const auto total = [](Tensor v) {
    return shard_map([](Tensor p) { return psum(sum(p * p * p), "host"); }, hosts(),
                     {.in = {P("host")}, .out = {P()}})(v);
  };
  const Tensor slope = jit(grad(total))(y);
  EXPECT_EQ(sharding_of(slope), rows());
  expect_same(collect(slope), 3.0f * x * x);
  // Two readers of one value: what flows back is added up part by part.
  const Tensor twice = jit(grad([&](Tensor v) { return total(v) + total(v * 2.0f); }))(y);
  expect_same(collect(twice), 27.0f * x * x);
  const auto per_row = jit(vmap(total, {.in_axes = 1}))(device_put(x, rows()));
  expect_same(per_row, sum(x * x * x, {.axes = Dims{0}}));
  const auto [value, tangent] =
      jit([&](Tensor v) { return jvp(total, std::tuple{v}, std::tuple{v}); })(y);
  expect_same(tangent, 3.0f * value, 1e-6);
}

TEST(Placement, ShardingsOfArgumentsAndResults) {
  const Tensor x = counting({n(), 3});
  const auto f = jit(
      [](Tensor v) {
        return std::pair{v * 2.0f, v + 1.0f};
      },
      {.in_shardings = {rows()}, .out_shardings = {rows(), Sharding(hosts(), P())}});
  for (const Tensor& argument : {x, device_put(x, rows())}) {
    const auto [a, b] = f(argument);
    EXPECT_EQ(sharding_of(a), rows());
    expect_same(collect(a), x * 2.0f);
    expect_same(b, x + 1.0f);  // sent to all, as was asked for
  }
  const auto put = jit([](Tensor v) { return device_put(v * 2.0f, rows()); })(x);
  EXPECT_EQ(sharding_of(put), rows());
  expect_same(collect(put), x * 2.0f);
}

TEST(Placement, CapturedAndDonated) {
  const Tensor x = counting({n(), 3}), y = device_put(x, rows());
  const auto add = jit([&](Tensor v) { return v + y; });
  expect_same(collect(add(x)), x + x);
  const auto twice = jit([](Tensor v) { return v * 2.0f; }, {.donate = {0}});
  const Tensor given = device_put(x, rows());
  expect_same(collect(twice(given)), x * 2.0f);
  EXPECT_THROW(shards_of(given)[0].data.to_vector<float>(), TypeError);
  expect_same(collect(y), x);
}

/// Functions in shard_map are told which part of the whole they see, over all processes.
TEST(Placement, OfPartsInCalls) {
  const Tensor x = counting({4 * size(), 3});
  const auto seen_in = [&](const Mesh& mesh, const P& spec) {
    std::map<int, std::vector<IndexRange>> parts;
    std::mutex guard;
    const auto listener = [&](const TapInfo& info, View<const float>) {
      const std::scoped_lock lock(guard);
      parts[info.device].assign(info.part.begin(), info.part.end());
    };
    const auto f = jit(shard_map([&](Tensor p) { return tap(p, listener) * 2.0f; }, mesh,
                                 {.in = {spec}, .out = {spec}}));
    f(x).block_until_ready();
    return parts;
  };
  const auto rows_of = [](std::int64_t first, std::int64_t count) {
    return std::vector<IndexRange>{{first, first + count}, {0, 3}};
  };
  const auto of_processes = seen_in(hosts(), P("host"));
  ASSERT_EQ(of_processes.size(), 1u);
  EXPECT_EQ(of_processes.begin()->second, rows_of(4 * rank(), 4));
  if (devices().size() < 2) GTEST_SKIP() << "needs two devices";
  const auto of_devices = seen_in(Mesh({{"host", processes}, {"x", 2}}), P(AxisNames{"host", "x"}));
  ASSERT_EQ(of_devices.size(), 2u);
  for (int device = 0; device < 2; ++device)
    EXPECT_EQ(of_devices.at(device), rows_of(4 * rank() + 2 * device, 2));
}

TEST(Placement, OfWhatIsShownOnOneProcess) {
  std::atomic<int> taps{0}, hooks{0};
  std::ostringstream text;
  const int last = size() - 1;
  const auto f = jit([&](Tensor v) {
    v = tap({.name = "one", .process = 0}, v, [&](float) { ++taps; });
    v = hook({.name = "other", .process = last}, v, [&](float) { ++hooks; });
    print({.stream = &text, .process = 0}, "{}", v);
    return v + 1.0f;
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(f(Tensor(2.0f)).item<float>(), 3.0f);
  barrier();
  EXPECT_EQ(taps, rank() == 0 ? 3 : 0);
  EXPECT_EQ(hooks, rank() == last ? 3 : 0);
  const std::string lines = text.str();
  EXPECT_EQ(std::ranges::count(lines, '\n'), rank() == 0 ? 3 : 0) << lines;
  expect_says(refusal_of([&] { tap({.process = -2}, Tensor(1.0f), [](float) {}); }),
              "process must be a rank");
  // Programs that are saved know it too.
  std::ostringstream after;
  const auto prints = jit([](Tensor v) {
    print({.process = 0}, "here");
    return v * 2.0f;
  });
  const Loaded loaded = load_text(saved_text(prints.lower(Tensor(1.0f))), "here");
  auto run = loaded.start({Tensor(1.0f)}, {.sink = &after});
  run.wait();
  barrier();
  EXPECT_EQ(after.str().find("here") != std::string::npos, rank() == 0) << after.str();
}

TEST(Placement, OfStatisticsOfAllProcesses) {
  const listen::Stats stats = listen::stats();
  const auto f = jit(shard_map([&](Tensor p) { return tap({.name = "p"}, p, stats); }, hosts(),
                               {.in = {P("host")}, .out = {P("host")}}));
  const Tensor x = counting({2 * size()});
  for (int i = 0; i < 3; ++i) f(x + static_cast<float>(i)).block_until_ready();
  barrier();
  const std::vector<listen::Series> all = stats.merged();
  ASSERT_EQ(all.size(), rank() == 0 ? 1u : 0u);
  if (rank() == 0) {
    EXPECT_EQ(all[0].firings, 3u * static_cast<unsigned>(size()));
    EXPECT_EQ(all[0].all.count, 6 * size());
    EXPECT_EQ(all[0].all.max, 2.0 * size() - 1 + 2);
    ASSERT_EQ(all[0].points.size(), 3u);
    EXPECT_EQ(all[0].points[1].summary.max, 2.0 * size());
    EXPECT_EQ(all[0].points[1].summary.min, 1.0);
  }
  expect_same(psum_of(Tensor(1.0f)), Tensor(static_cast<float>(size())));
}

TEST(Placement, OfStatisticsWithoutOneProcess) {
  if (size() < 2) GTEST_SKIP() << "one process waits for nobody";
  const listen::Stats stats = listen::stats();
  std::string text;
  try {
    // The last one comes late: it calls when the others have told that it is over.
    if (rank() == size() - 1) std::this_thread::sleep_for(3s);
    stats.merged(rank() == size() - 1 ? 60s : 100ms);
  } catch (const Error& e) {
    text = e.what();
  }
  expect_says(text, fmt::format("not all processes came within 100 ms"));
  expect_same(psum_of(Tensor(1.0f)), Tensor(static_cast<float>(size())));
}

TEST(Placement, SavedPrograms) {
  const auto f = jit(shard_map(
      [](Tensor p) {
        return std::pair{p * 2.0f, psum(p, "host")};
      },
      hosts(), {.in = {P("host")}, .out = {P("host"), P()}}));
  const Tensor x = counting({n(), 3}), y = device_put(x, rows());
  const auto file = std::filesystem::temp_directory_path() / fmt::format("postern-{}", getpid());
  save(file, f.lower(y));
  const Loaded loaded = load(file);
  std::filesystem::remove(file);
  EXPECT_EQ(to_string(loaded.inputs()[0]), to_string(x.type()));
  for (const Tensor& argument : {x, y}) {
    const std::vector<Tensor> got = loaded.run({argument});
    EXPECT_EQ(sharding_of(got[0]), rows());
    expect_same(collect(got[0]), x * 2.0f);
    expect_same(got[1], sum(x, {.axes = Dims{0}, .keep_dims = true}));
  }
}

TEST(Placement, SavedProgramsForAnyNumber) {
  if (size() < 2) GTEST_SKIP() << "one process cuts nothing";
  const auto f = jit(shard_map(
      [](Tensor p) {
        const Tensor slope = grad([](Tensor v) { return pmean(sum(v * v), "host"); })(p);
        return std::tuple{p * 2.0f, pmean(p, "host"), slope + broadcast(p, "host")};
      },
      hosts(), {.in = {P("host")}, .out = {P("host"), P(), P("host")}}));
  const Tensor mine = counting({2}) + static_cast<float>(rank());
  std::string text = saved_text(f.lower(device_put(mine, rows(), Gives::part)));
  expect_says(text, "any_number");
  const Loaded loaded = load_text(text, "here");
  EXPECT_EQ(loaded.inputs()[0].dims[0], 2 * n());
  const auto got = loaded.run({device_put(mine, rows(), Gives::part)});
  expect_same(shards_of(got[0])[0].data, mine * 2.0f);
  float middle = 0;
  for (int r = 0; r < size(); ++r) middle += static_cast<float>(r) / static_cast<float>(size());
  expect_same(got[1], counting({2}) + middle, 1e-6);

  const auto counts = jit(
      shard_map([](Tensor p) { return psum(p, "host") / static_cast<float>(axis_size("host")); },
                hosts(), {.in = {P("host")}, .out = {P()}}));
  text = saved_text(counts.lower(device_put(mine, rows(), Gives::part)));
  EXPECT_EQ(text.find("any_number"), std::string::npos) << "the function was told the number";
}

}  // namespace
}  // namespace postern::test
