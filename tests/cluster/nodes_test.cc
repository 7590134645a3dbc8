// What plug-ins of several processes tell each other by, and what they are told of each other.
#include "cluster_test.h"

#include "cluster/store.h"
#include "platform/cpu/cpu.h"
#include "platform/nodes.h"

namespace postern::test {
using namespace internal;
namespace {

using clusters::Store;

/// The first of these tests: process 0 answers from when its store is first asked for.
TEST(Nodes, ALateAnswerIsOfItsQuestion) {
  if (size() < 2) GTEST_SKIP() << "needs several processes";
  if (rank() == 0) std::this_thread::sleep_for(4s);
  Store::answer_limit() = 300ms;
  bool was_late = false;
  if (rank() != 0) try {
      Store::get().put("late", "text");
    } catch (const Error& e) {
      was_late = e.code() == ErrorCode::unavailable;
    }
  EXPECT_EQ(was_late, rank() != 0);
  Store::answer_limit() = 10s;
  Store::get().put("late", "text");
  EXPECT_EQ(Store::get().try_get("late"), "text");
}

TEST(Nodes, TextsThatAllHave) {
  Store& store = (static_cast<void>(rank()), Store::get());
  const auto key = [](int r) { return fmt::format("from {}", r); };
  const std::string large(1 << 20, 'x');
  store.put(key(rank()), large + std::to_string(rank()));
  for (int r = 0; r < size(); ++r)
    EXPECT_TRUE(store.get(key(r), 10s) == large + std::to_string(r)) << "process " << r;
  EXPECT_FALSE(store.try_get("nobody"));
  const std::string mine = fmt::format("again from {}", rank());
  store.put(mine, "before");
  store.put(mine, "");
  EXPECT_EQ(store.try_get(mine), "");
}

TEST(Nodes, WaitsHaveLimitsAndManyMayAsk) {
  Store& store = Store::get();
  const auto begin = std::chrono::steady_clock::now();
  try {
    store.get("nobody", 50ms);
    ADD_FAILURE() << "nobody has put it";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::deadline_exceeded);
    expect_says(e.what(), "nobody has put 'nobody' within 50 ms");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const std::string key = fmt::format("{} {} {}", rank(), t, i);
        store.put(key, key);
        EXPECT_EQ(store.get(key, 10s), key);
        EXPECT_EQ(store.get(fmt::format("{} {} {}", (rank() + 1) % size(), t, i), 20s),
                  fmt::format("{} {} {}", (rank() + 1) % size(), t, i));
      }
    });
  for (std::thread& t : threads) t.join();
}

/// By a stand-in for a plug-in of several nodes.
TEST(Nodes, PluginsAreToldOfEachOther) {
  const pjrt::Plugin& plugin = pjrt::Plugin::load(POSTERN_TEST_LIBRARIES "/node_plugin.so");
  const platforms::Nodes nodes = platforms::nodes_of_cluster();
  EXPECT_EQ(nodes.count, size());
  EXPECT_EQ(nodes.number, rank());
  {
    const pjrt::KeyValueScope scope(*nodes.store);
    const pjrt::Client client(plugin, nodes.options());
    EXPECT_FALSE(client.devices().empty());
    EXPECT_THROW(pjrt::Client(plugin, {{"num_nodes", std::int64_t{size()}}}), Error);
  }
  EXPECT_THROW(pjrt::Client(plugin, nodes.options()), Error) << "without a store";
}

TEST(Nodes, OnCpusThereAreNone) {
  expect_says(refusal_of([&] { platforms::join_nodes(platforms::cpu); }),
              "the cpu plug-in knows nothing of other processes");
}

}  // namespace
}  // namespace postern::test
