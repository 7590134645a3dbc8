// The callables of any type that public headers hold (detail/function.h).
#include <gtest/gtest.h>
#include <postern/detail/function.h>

#include <memory>
#include <string>

namespace postern::detail {
namespace {

/// Counts those of it that there are.
struct Counted {
  int* living;
  int value = 0;
  Counted(int* counter, int v) : living(counter), value(v) { ++*living; }
  Counted(const Counted& other) : living(other.living), value(other.value) { ++*living; }
  Counted(Counted&& other) noexcept : living(other.living), value(other.value) { ++*living; }
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --*living; }
  int operator()(int x) { return value += x; }
};

TEST(Function, CopiesShareWhatTheyCallAndTheLastOneDropsIt) {
  int living = 0;
  {
    Function<int(int)> first{Counted(&living, 10)};
    EXPECT_EQ(living, 1);
    {
      const Function<int(int)> second = first;
      EXPECT_EQ(living, 1);
      EXPECT_EQ(second(1), 11);
      first = {};
      EXPECT_FALSE(first);
      EXPECT_TRUE(second);
      EXPECT_EQ(second(1), 12);
      EXPECT_EQ(living, 1);
    }
    EXPECT_EQ(living, 0);
  }
}

TEST(Function, SharedObjectsAreOne) {
  int living = 0;
  {
    const Shared<Counted> first{Counted(&living, 1)}, second = first;
    (*first)(5);
    EXPECT_EQ((*second).value, 6);
    EXPECT_EQ(living, 1);
  }
  EXPECT_EQ(living, 0);
}

TEST(Function, ArgumentsArePassedOnAsTheyCome) {
  const Function<std::unique_ptr<int>(std::unique_ptr<int>, std::string&)> f =
      [](std::unique_ptr<int> given, std::string& text) {
        text += "seen";
        return given;
      };
  std::string text;
  auto given = std::make_unique<int>(3);
  const int* const address = given.get();
  EXPECT_EQ(f(std::move(given), text).get(), address);
  EXPECT_EQ(text, "seen");
}

TEST(Function, ReferencesCallWhatTheyReferTo) {
  int calls = 0;
  const auto twice = [&](int x) {
    ++calls;
    return 2 * x;
  };
  const auto use = [](FunctionRef<int(int)> f) { return f(1) + f(2); };
  EXPECT_EQ(use(twice), 6);
  EXPECT_EQ(calls, 2);
}

TEST(Function, WhatACopyThrowsLeavesNothing) {
  struct Throws {
    Throws() = default;
    Throws(const Throws&) { throw std::string("no"); }
    void operator()() const {}
  };
  const Throws object;
  EXPECT_THROW(Function<void()>{object}, std::string);
}

}  // namespace
}  // namespace postern::detail
