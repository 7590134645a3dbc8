// How loud POSTERN_LOG makes the log.
#include "core/log.h"

#include <gtest/gtest.h>

namespace postern::internal {
namespace {

TEST(Log, ALevelStandsAmongOtherWords) {
  for (const char* words : {"info", "info,xla", "xla,info", "xla, info", "xla info", ",info,"})
    EXPECT_EQ(log_level_in(words), LogLevel::info) << words;
  EXPECT_EQ(log_level_in("xla,debug"), LogLevel::debug);
  EXPECT_EQ(log_level_in("off,xla"), LogLevel::off);
  EXPECT_EQ(log_level_in("warning,debug"), LogLevel::warning);
  for (const char* words : {"", "xla", "infos", "xlainfo", "INFO"})
    EXPECT_EQ(log_level_in(words), LogLevel::warning) << words;
}

}  // namespace
}  // namespace postern::internal
