// Wrong calls, and whose line their errors name.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "support.h"

namespace postern::places_test {

using test::has;

struct Wrong {
  const char* text;
  std::string file;
  int line;
  std::function<void()> call;
};
// One line each: __LINE__ is that of the whole.
#define WRONG(...)                                                      \
  Wrong {                                                               \
#__VA_ARGS__, std::filesystem::path(__FILE__).filename(), __LINE__, \
        [&] { static_cast<void>(__VA_ARGS__); }                         \
  }

inline void expect_own_lines(const std::vector<Wrong>& calls) {
  for (const Wrong& wrong : calls) {
    const std::string place = wrong.file + ":" + std::to_string(wrong.line) + ")";
    try {
      wrong.call();
      ADD_FAILURE() << wrong.text << " throws nothing";
    } catch (const Error& e) {
      EXPECT_TRUE(has(e.what(), place)) << wrong.text << "\n  " << e.what();
    } catch (const std::exception& e) {
      ADD_FAILURE() << wrong.text << " throws what is no Error: " << e.what();
    }
  }
}

inline const Tensor none;  // which every operation refuses
inline const Type f32x2 = {DType::f32, {2}};
inline const Dims two{2}, one{1};

}  // namespace postern::places_test
