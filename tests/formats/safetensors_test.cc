// Files of tensors, written and read; damaged ones.
#include <random>

#include "file/file_test.h"

namespace postern::test {
namespace {

std::string with_head(const std::string& head, const std::string& data) {
  std::string out(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(head.size() >> (8 * i));
  return out + head + data;
}

TEST(Safetensors, EveryDtypeComesBack) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.safetensors";
  for (int d = 0; d < static_cast<int>(DType::token); ++d)
    for (const Dims& dims : {Dims{}, Dims{3}, Dims{2, 0}, Dims{2, 3, 1}}) {
      const Type type = make_type(static_cast<DType>(d), dims);
      std::vector<std::byte> bytes(type.byte_size() + 1), got(type.byte_size() + 1);
      for (std::size_t i = 0; i + 1 < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 2);
      save_tensors(file, NamedTensors{{"x", Tensor(type, bytes.data())}});
      const NamedTensors back = load_tensors(file);
      ASSERT_EQ(back.size(), 1u);
      EXPECT_EQ(back[0].first, "x");
      ASSERT_EQ(to_string(back[0].second.type()), to_string(type));
      back[0].second.read(got.data());
      EXPECT_EQ(bytes, got) << to_string(type);
    }
}

struct Layer {
  Tensor w, b;
};

TEST(Safetensors, LeavesAreNamedByTheirPathsInOrder) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.safetensors";
  const std::pair model{std::vector<Layer>{{Tensor(1.0f), Tensor(2)}, {Tensor(3.0f), Tensor(4)}},
                        std::map<std::string, Tensor>{{"mean", Tensor(true)}}};
  save_tensors(file, model);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : load_tensors(file)) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"[0][0].w", "[0][0].b", "[0][1].w", "[0][1].b", "[1].mean"}));
  save_tensors(file, Tensor(2.5f));
  EXPECT_EQ(load_tensors(file)[0].first, "value");
  EXPECT_EQ(load_tensors(file)[0].second.item<float>(), 2.5f);
}

TEST(Safetensors, TheFormatIsTheOneThatOthersRead) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.safetensors";
  save_tensors(file, NamedTensors{{"b", tensor<std::int16_t>({258})}, {"a", Tensor(true)}});
  const std::string head = R"({"a":{"data_offsets":[2,3],"dtype":"BOOL","shape":[]},)"
                           R"("b":{"data_offsets":[0,2],"dtype":"I16","shape":[1]}})";
  const std::string padded = head + std::string((8 - head.size() % 8) % 8, ' ');
  EXPECT_EQ(contents(file), with_head(padded, std::string("\x02\x01\x01", 3)));
  put(file, with_head(R"({"__metadata__":{"format":"pt"},"x":{"dtype":"F32","shape":[1],)"
                      R"("data_offsets":[0,4]}})",
                      std::string("\0\0\x80\x3f", 4)));
  EXPECT_EQ(load_tensors(file)[0].second.to_vector<float>(), std::vector<float>{1});
}

TEST(Safetensors, WhatIsNoneIsRefused) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.safetensors";
  const auto refused = [&](const std::string& bytes, const char* why, ErrorCode code) {
    put(file, bytes);
    expect_error<Error>([&] { load_tensors(file); }, {"load_tensors", file, why}, code);
  };
  const auto entry = [](const char* text) { return std::string(R"({"x":)") + text + "}"; };
  constexpr auto invalid = ErrorCode::invalid_argument;
  refused("", "too short", invalid);
  refused(std::string(8, '\xff'), "its head would have", invalid);
  refused(with_head("{}", "").substr(0, 9), "in its head", ErrorCode::data_loss);
  refused(with_head("{", ""), "no safetensors' one", invalid);
  refused(with_head(std::string(50'000, '['), ""), "no safetensors' one", invalid);
  for (const char* head :
       {"null", "[]", "5", R"([{"dtype":"F32","shape":[],"data_offsets":[0,0]}])"})
    refused(with_head(head, ""), "no safetensors' one: it is no object", invalid);
  refused(with_head(entry(R"({"dtype":"F6","shape":[],"data_offsets":[0,0]})"), ""), "\"F6\"",
          ErrorCode::unimplemented);
  refused(with_head(entry(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), "abcd"),
          "0 or more", invalid);
  refused(with_head(entry(R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]})"),
                    "abcd"),
          "", invalid);
  for (const char* extent : {"1.5", "1.0", "1e0", "-1", "9223372036854775808", "\"1\"", "[1]"})
    refused(with_head(entry((R"({"dtype":"F32","shape":[)" + std::string(extent) +
                             R"(],"data_offsets":[0,4]})")
                                .c_str()),
                      "abcd"),
            "", invalid);
  for (const char* offset : {"4.5", "-4", "18446744073709551620", "null"})
    refused(with_head(entry((R"({"dtype":"F32","shape":[1],"data_offsets":[0,)" +
                             std::string(offset) + "]}")
                                .c_str()),
                      "abcd"),
            "", invalid);
  std::string axes = "1";
  for (int i = 1; i < 100'000; ++i) axes += ",1";
  refused(
      with_head(entry((R"({"dtype":"U8","shape":[)" + axes + R"(],"data_offsets":[0,1]})").c_str()),
                "a"),
      "at most 64 axes, got 100000", invalid);
  refused(with_head(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), "abcd"),
          "has not the bytes", invalid);
  refused(with_head(entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})"), "abc"),
          "cut short, in tensor \"x\"", ErrorCode::data_loss);
  refused(with_head(entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"), "abcdefgh"),
          "gap", invalid);
  refused(with_head(entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})"), "abcdef"),
          "2 bytes behind", invalid);
  expect_error<Error>([&] { load_tensors(folder.path() + "/none"); }, {"No such file"},
                      ErrorCode::not_found);
  expect_error<TypeError>([&] { save_tensors(file, NamedTensors{{"", Tensor(1)}}); }, {"name"});
  expect_error<TypeError>(
      [&] {
        save_tensors(file, NamedTensors{{"x", Tensor(1)}, {"x", Tensor(1)}});
      },
      {"two"});
  expect_error<TypeError>(
      [&] {
        save_tensors(file, NamedTensors{{"\xff", Tensor(1)}});
      },
      {"UTF-8"});
}

TEST(Safetensors, WeightsComeBackIntoTheirContainer) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.safetensors";
  using Model = std::pair<std::vector<Layer>, int>;
  const Model model{{{tensor<float>({1, 2}), Tensor(2)}, {Tensor(3.0f), Tensor(4)}}, 7};
  save_tensors(file, model);
  const auto [layers, number] =
      load_tensors(file, Model{{{abstract(type<float>({2})), Tensor(0)}}, 9});
  EXPECT_EQ(layers[0].w.to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(layers[0].b.item<int>(), 2);
  EXPECT_EQ(number, 9);
  expect_error<Error>(
      [&] {
        load_tensors(file, std::pair(std::vector{Layer{Tensor(1.0f), Tensor(2)}}, Tensor(1)));
      },
      {"has other tensors", "\"[0][0].w\" is f32[], in the file f32[2]",
       "\"[1]\" is not in the file"},
      ErrorCode::failed_precondition);
}

TEST(Safetensors, ADamagedFileIsAnErrorOrWhatItSays) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.safetensors";
  save_tensors(file, NamedTensors{{"w", tensor<float>({1, 2})}, {"z", Tensor(std::complex(1.0))}});
  const std::string whole = contents(file);
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    for (int n = 0; n <= i % 4; ++n)
      damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
    if (i % 3 == 0) damaged.resize(random() % damaged.size());
    put(file, damaged);
    try {
      for (const auto& [name, tensor] : load_tensors(file)) tensor.block_until_ready();
    } catch (const Error&) {
    }
  }
}

TEST(Safetensors, BooleansOfOthersAreTrueOrFalse) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.safetensors";
  put(file, with_head(R"({"x":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})",
                      std::string("\x02\x00\xff", 3)));
  const Tensor x = load_tensors(file)[0].second;
  EXPECT_EQ(sum(convert(x, DType::s32)).item<std::int32_t>(), 2);
}

}  // namespace
}  // namespace postern::test
