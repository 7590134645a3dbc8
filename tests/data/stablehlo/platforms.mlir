#loc = loc(unknown)
#loc1 = loc("x")
module @jit_platforms attributes {jax.uses_shape_polymorphism = true, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<i32> {jax.global_constant = "_platform_index"} loc(unknown), %arg1: tensor<3xf32> loc("x")) -> (tensor<3xf32> {jax.result_info = "result"}) {
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32> loc(#loc)
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32> loc(#loc)
    %cst_1 = stablehlo.constant dense<3.000000e+00> : tensor<f32> loc(#loc)
    %c = stablehlo.constant dense<1> : tensor<i32> loc(#loc)
    %c_2 = stablehlo.constant dense<0> : tensor<i32> loc(#loc)
    %c_3 = stablehlo.constant dense<2> : tensor<i32> loc(#loc)
    %0 = "stablehlo.case"(%arg0) ({
      stablehlo.return %c_3 : tensor<i32> loc(#loc17)
    }, {
      stablehlo.return %c_2 : tensor<i32> loc(#loc17)
    }, {
      stablehlo.return %c : tensor<i32> loc(#loc17)
    }) : (tensor<i32>) -> tensor<i32> loc(#loc17)
    %1 = "stablehlo.case"(%0) ({
      stablehlo.return %c_2 : tensor<i32> loc(#loc17)
    }, {
      stablehlo.return %c : tensor<i32> loc(#loc17)
    }, {
      stablehlo.return %c_3 : tensor<i32> loc(#loc17)
    }) : (tensor<i32>) -> tensor<i32> loc(#loc17)
    %2 = "stablehlo.case"(%1) ({
      stablehlo.return %c : tensor<i32> loc(#loc18)
    }, {
      stablehlo.return %c_3 : tensor<i32> loc(#loc18)
    }, {
      stablehlo.return %c_2 : tensor<i32> loc(#loc18)
    }) : (tensor<i32>) -> tensor<i32> loc(#loc18)
    %3 = "stablehlo.case"(%2) ({
      %4 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<3xf32> loc(#loc22)
      %5 = stablehlo.add %arg1, %4 : tensor<3xf32> loc(#loc22)
      stablehlo.return %5 : tensor<3xf32> loc(#loc18)
    }, {
      %4 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<3xf32> loc(#loc23)
      %5 = stablehlo.add %arg1, %4 : tensor<3xf32> loc(#loc23)
      stablehlo.return %5 : tensor<3xf32> loc(#loc18)
    }, {
      %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<3xf32> loc(#loc24)
      %5 = stablehlo.add %arg1, %4 : tensor<3xf32> loc(#loc24)
      stablehlo.return %5 : tensor<3xf32> loc(#loc18)
    }) : (tensor<i32>) -> tensor<3xf32> loc(#loc18)
    return %3 : tensor<3xf32> loc(#loc16)
  } loc(#loc)
} loc(#loc)
#loc2 = loc("golden_stablehlo":178:11 to 180:5)
#loc3 = loc("golden_stablehlo":432:11 to :78)
#loc4 = loc("golden_stablehlo":444:29 to :54)
#loc5 = loc("golden_stablehlo":179:72 to :77)
#loc6 = loc("golden_stablehlo":179:25 to :30)
#loc7 = loc("golden_stablehlo":179:47 to :52)
#loc8 = loc("platforms"(#loc2))
#loc9 = loc("exported"(#loc3))
#loc10 = loc("<module>"(#loc4))
#loc11 = loc("platforms.<locals>.<lambda>"(#loc5))
#loc12 = loc("platforms.<locals>.<lambda>"(#loc6))
#loc13 = loc("platforms.<locals>.<lambda>"(#loc7))
#loc14 = loc(callsite(#loc9 at #loc10))
#loc15 = loc(callsite(#loc8 at #loc14))
#loc16 = loc("jit(platforms)"(#loc14))
#loc17 = loc("jit(platforms)/platform_index"(#loc15))
#loc18 = loc("jit(platforms)/cond"(#loc15))
#loc19 = loc(callsite(#loc11 at #loc15))
#loc20 = loc(callsite(#loc12 at #loc15))
#loc21 = loc(callsite(#loc13 at #loc15))
#loc22 = loc("jit(platforms)/cond/branch_0_fun/add"(#loc19))
#loc23 = loc("jit(platforms)/cond/branch_1_fun/add"(#loc20))
#loc24 = loc("jit(platforms)/cond/branch_2_fun/add"(#loc21))
