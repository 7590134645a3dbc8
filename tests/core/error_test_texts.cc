// Exceptions whose texts are none: null, huge, not UTF-8.
#include <sstream>

#include "core/text.h"
#include "support.h"

namespace postern::test {
using namespace internal;
namespace {

struct Silent : std::exception {
  const char* what() const noexcept override { return nullptr; }
};

enum class Way { compiled, evaluated, started, limited, batched, later };

/// The error at whoever waits when a host function throws `thrown` on this way.
template <class Thrown>
CallbackError thrown_by(Way way, const Thrown& thrown) {
  const Tensor x = tensor<float>({1, 2});
  auto fail = [thrown](View<const float>, View<float>) { throw thrown; };
  auto called = [&](Tensor v) {
    if (way == Way::later)
      return tap({.name = "f", .mode = TapMode::async}, v,
                 [thrown](View<const float>) { throw thrown; });
    CallOptions options{.name = "f", .timeout = way == Way::limited ? 100s : 0s};
    if (way == Way::batched)
      return vmap([&](Tensor e) {
        return call(
            options, e.type(), [thrown](float) -> float { throw thrown; }, e);
      })(v);
    return call(options, v.type(), fail, v);
  };
  const auto f = jit(called, {.mode = way == Way::evaluated ? Mode::evaluate : Mode::automatic});
  const auto e = error_of<CallbackError>([&] {
    if (way == Way::started)
      f.start(x).result();
    else
      f(x).block_until_ready();
    if (way == Way::later) barrier();
  });
  return e.value_or(CallbackError(ErrorCode::unknown, "", {}, 0, nullptr));
}

constexpr Way ways[] = {Way::compiled, Way::evaluated, Way::started,
                        Way::limited,  Way::batched,   Way::later};

TEST(ErrorTexts, AnExceptionWithoutATextIsNamedByItsType) {
  for (const Way way : ways) {
    const CallbackError e = thrown_by(way, Silent());
    EXPECT_EQ(e.code(), ErrorCode::threw) << static_cast<int>(way);
    EXPECT_TRUE(has(e.what(), "'f' at error_test_texts.cc:") &&
                has(e.what(), "Silent without a text"))
        << e.what();
    EXPECT_TRUE(cause_of<Silent>(e));
  }
}

TEST(ErrorTexts, AHugeTextIsCut) {
  const std::runtime_error huge("begin " + std::string(std::size_t{20} << 20, 'x'));
  for (const Way way : ways) {
    const CallbackError e = thrown_by(way, huge);
    const std::string_view text = e.what();
    EXPECT_EQ(e.code(), ErrorCode::threw) << static_cast<int>(way);
    EXPECT_TRUE(has(text, "begin xxx") && has(text, "(cut, it has 20971526 bytes)")) << text.size();
    EXPECT_LT(text.size(), std::size_t{1} << 17);
    const auto cause = cause_of<std::runtime_error>(e);
    ASSERT_TRUE(cause);
    EXPECT_EQ(std::string_view(cause->what()), std::string_view(huge.what()));
  }
}

TEST(ErrorTexts, ATextThatIsNoUtf8IsEscaped) {
  for (const Way way : ways) {
    const CallbackError e = thrown_by(way, std::runtime_error("gr\xf6\xdf \x1b[2J ok"));
    EXPECT_EQ(e.code(), ErrorCode::threw) << static_cast<int>(way);
    EXPECT_TRUE(has(e.what(), "gr\\xF6\\xDF \\x1B[2J ok")) << e.what();
  }
}

TEST(ErrorTexts, TheCutIsNotInsideACharacter) {
  std::string text(65534, 'a');
  for (int i = 0; i < 3; ++i) text += "\xf0\x9f\x98\x80";
  const std::string cut = limited(text);
  EXPECT_TRUE(is_utf8(cut));
  EXPECT_TRUE(has(cut, "a... (cut, it has 65546 bytes)")) << cut.substr(65500);
  EXPECT_EQ(limited(std::string(65536, 'b')).size(), 65536u);
}

TEST(ErrorTexts, AttributesThatAreNoTextsAreRefusedInJson) {
  expect_error<TypeError>([] { to_json_text({{"path", "\xff"}}); }, {"UTF-8"});
  expect_error<TypeError>([] { to_json_text({{"\xff", 1}}); }, {"UTF-8"});
  EXPECT_EQ(to_json_text({{"path", "\u00e9"}}), "{\"path\":{\"string\":\"\u00e9\"}}");
}

}  // namespace
}  // namespace postern::test
