// SmallVector, and what is made of it, at the sizes where it begins to allocate.
#include <gtest/gtest.h>
#include <postern/call.h>
#include <postern/detail/small_vector.h>

#include <numeric>

namespace postern {
namespace {

TEST(SmallVector, KeepsItsElementsWhenItGrows) {
  detail::SmallVector<int, 4> list;
  for (int i = 0; i < 100; ++i) {
    list.push_back(i);
    ASSERT_EQ(list.size(), static_cast<std::size_t>(i + 1));
    EXPECT_EQ(std::accumulate(list.begin(), list.end(), 0), i * (i + 1) / 2);
  }
}

TEST(SmallVector, GoesOnAfterAResize) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{4}, std::size_t{5}}) {
    detail::SmallVector<const char*, 4> list(size);
    std::fill(list.begin(), list.end(), "first");
    list.resize(size + 3);
    ASSERT_EQ(list.size(), size + 3);
    if (size > 0) {
      EXPECT_STREQ(list[size - 1], "first");
    }
    list.push_back("last");
    EXPECT_STREQ(list.end()[-1], "last");
    if (size > 0) {
      EXPECT_STREQ(list[0], "first");
    }
  }
}

TEST(SmallVector, FunctionsOfAllOperandsSeeAnyNumber) {
  using All = std::span<const AnyView>;
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, detail::inline_leaves,
                                  detail::inline_leaves + 1, std::size_t{40}}) {
    std::vector<int> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 7);
    std::vector<void*> data;
    for (int& n : numbers) data.push_back(&n);
    const std::vector<detail::LeafLayout> leaves(count, {DType::s32, nullptr, 0, 1});
    detail::Firing firing{};
    firing.data = data.data();
    firing.leaves = leaves.data();
    firing.operands = count;
    const auto seen = [&](All all) {
      EXPECT_EQ(all.size(), count);
      for (std::size_t i = 0; i < all.size(); ++i)
        EXPECT_EQ(static_cast<const void*>(all[i].data()), &numbers[i]);
    };
    seen(detail::Taken<All>::make(firing, 0));
  }
}

}  // namespace
}  // namespace postern
