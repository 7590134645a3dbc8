module @jit_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2x4x4xf32>, %arg1: tensor<2x4x1xf32>) -> (tensor<2x4x4xf64> {jax.result_info = "result[0]"}, tensor<2x4x4xf64> {jax.result_info = "result[1]"}, tensor<2x4x2xf64> {jax.result_info = "result[2]"}, tensor<2x4x2xf64> {jax.result_info = "result[3]"}, tensor<2x2x4xf64> {jax.result_info = "result[4]"}, tensor<2x2x4xf64> {jax.result_info = "result[5]"}, tensor<2x4x2xf64> {jax.result_info = "result[6]"}, tensor<2x4x2xf64> {jax.result_info = "result[7]"}, tensor<2x4x3xf64> {jax.result_info = "result[8]"}, tensor<2x4x3xf64> {jax.result_info = "result[9]"}, tensor<2x3xi32> {jax.result_info = "result[10]"}, tensor<2x4xi32> {jax.result_info = "result[11]"}, tensor<2x2x4xf64> {jax.result_info = "result[12]"}, tensor<2x2x4xf64> {jax.result_info = "result[13]"}, tensor<2x2xi32> {jax.result_info = "result[14]"}, tensor<2x2xi32> {jax.result_info = "result[15]"}, tensor<2x4x2xf64> {jax.result_info = "result[16]"}, tensor<2x4x2xf64> {jax.result_info = "result[17]"}, tensor<2x4x4xf64> {jax.result_info = "result[18]"}, tensor<2x4x4xf64> {jax.result_info = "result[19]"}, tensor<2x4x3xf64> {jax.result_info = "result[20]"}, tensor<2x4x3xf64> {jax.result_info = "result[21]"}, tensor<2x3xf64> {jax.result_info = "result[22]"}, tensor<2x4x3xf64> {jax.result_info = "result[23]"}, tensor<2x4x3xf64> {jax.result_info = "result[24]"}, tensor<2x2xf64> {jax.result_info = "result[25]"}, tensor<2x2x2xf64> {jax.result_info = "result[26]"}, tensor<2x4xf64> {jax.result_info = "result[27]"}, tensor<2x4xf64> {jax.result_info = "result[28]"}, tensor<2x4x4xf64> {jax.result_info = "result[29]"}, tensor<2x4x4xf64> {jax.result_info = "result[30]"}, tensor<2x4xf64> {jax.result_info = "result[31]"}, tensor<2x4x4xf64> {jax.result_info = "result[32]"}, tensor<2x4x4xf64> {jax.result_info = "result[33]"}, tensor<2x4x4xf64> {jax.result_info = "result[34]"}, tensor<2x4x4xf64> {jax.result_info = "result[35]"}, tensor<2x4x4xf64> {jax.result_info = "result[36]"}, tensor<2x4x4xf64> {jax.result_info = "result[37]"}, tensor<2x4x4xf64> {jax.result_info = "result[38]"}, tensor<2x4x4xf64> {jax.result_info = "result[39]"}, tensor<2x3xf64> {jax.result_info = "result[40]"}, tensor<2x3xf64> {jax.result_info = "result[41]"}, tensor<2x4x2xf64> {jax.result_info = "result[42]"}, tensor<2x4x2xf64> {jax.result_info = "result[43]"}, tensor<2x4xf64> {jax.result_info = "result[44]"}, tensor<2x3xf64> {jax.result_info = "result[45]"}, tensor<2x4x4xf64> {jax.result_info = "result[46]"}, tensor<2x4x4xf64> {jax.result_info = "result[47]"}) {
    %cst = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x4x4xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<2x4x4xf32>
    %2 = stablehlo.cosine %1 : tensor<2x4x4xf32>
    %3 = stablehlo.convert %2 : (tensor<2x4x4xf32>) -> tensor<2x4x4xcomplex<f32>>
    %cst_0 = stablehlo.constant dense<(0.000000e+00,1.000000e+00)> : tensor<complex<f32>>
    %4 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<complex<f32>>) -> tensor<2x4x4xcomplex<f32>>
    %5 = stablehlo.multiply %4, %3 : tensor<2x4x4xcomplex<f32>>
    %6 = stablehlo.convert %arg0 : (tensor<2x4x4xf32>) -> tensor<2x4x4xcomplex<f32>>
    %7 = stablehlo.add %6, %5 : tensor<2x4x4xcomplex<f32>>
    %8 = stablehlo.convert %7 : (tensor<2x4x4xcomplex<f32>>) -> tensor<2x4x4xcomplex<f64>>
    %9 = stablehlo.slice %8 [0:2, 0:4, 0:3] : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x3xcomplex<f64>>
    %10 = stablehlo.slice %8 [0:2, 0:2, 0:4] : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x2x4xcomplex<f64>>
    %11 = stablehlo.reverse %arg1, dims = [1] : tensor<2x4x1xf32>
    %12 = stablehlo.concatenate %arg1, %11, dim = 2 : (tensor<2x4x1xf32>, tensor<2x4x1xf32>) -> tensor<2x4x2xf32>
    %13 = stablehlo.convert %12 : (tensor<2x4x2xf32>) -> tensor<2x4x2xcomplex<f64>>
    %14 = stablehlo.transpose %8, dims = [0, 2, 1] : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %15 = stablehlo.real %14 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %16 = stablehlo.imag %14 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %17 = stablehlo.negate %16 : tensor<2x4x4xf64>
    %18 = stablehlo.complex %15, %17 : tensor<2x4x4xcomplex<f64>>
    %19 = stablehlo.dot_general %8, %18, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x4x4xcomplex<f64>>, tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %20 = stablehlo.iota dim = 0 : tensor<4x4xi64>
    %21 = stablehlo.iota dim = 1 : tensor<4x4xi64>
    %c = stablehlo.constant dense<0> : tensor<i64>
    %22 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i64>) -> tensor<4x4xi64>
    %23 = stablehlo.add %20, %22 : tensor<4x4xi64>
    %24 = stablehlo.compare EQ, %23, %21, SIGNED : (tensor<4x4xi64>, tensor<4x4xi64>) -> tensor<4x4xi1>
    %25 = stablehlo.convert %24 : (tensor<4x4xi1>) -> tensor<4x4xcomplex<f64>>
    %cst_1 = stablehlo.constant dense<(2.000000e+00,0.000000e+00)> : tensor<complex<f64>>
    %26 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<complex<f64>>) -> tensor<4x4xcomplex<f64>>
    %27 = stablehlo.multiply %26, %25 : tensor<4x4xcomplex<f64>>
    %28 = stablehlo.broadcast_in_dim %27, dims = [1, 2] : (tensor<4x4xcomplex<f64>>) -> tensor<1x4x4xcomplex<f64>>
    %29 = stablehlo.broadcast_in_dim %28, dims = [0, 1, 2] : (tensor<1x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %30 = stablehlo.add %19, %29 : tensor<2x4x4xcomplex<f64>>
    %31 = call @cholesky(%30) : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %32 = stablehlo.custom_call @lapack_ztrsm_ffi(%31, %13) {backend_config = "", mhlo.backend_config = {diag = 78 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 76 : ui8}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 1, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k], [i, l, m])->([i, n, o]) {i=2, j=4, k=4, l=4, m=2, n=4, o=2}, custom>} : (tensor<2x4x4xcomplex<f64>>, tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x2xcomplex<f64>>
    %33 = stablehlo.transpose %13, dims = [0, 2, 1] : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x2x4xcomplex<f64>>
    %34 = stablehlo.real %33 : (tensor<2x2x4xcomplex<f64>>) -> tensor<2x2x4xf64>
    %35 = stablehlo.imag %33 : (tensor<2x2x4xcomplex<f64>>) -> tensor<2x2x4xf64>
    %36 = stablehlo.negate %35 : tensor<2x2x4xf64>
    %37 = stablehlo.complex %34, %36 : tensor<2x2x4xcomplex<f64>>
    %38 = stablehlo.custom_call @lapack_ztrsm_ffi(%31, %37) {backend_config = "", mhlo.backend_config = {diag = 78 : ui8, side = 82 : ui8, trans_x = 84 : ui8, uplo = 76 : ui8}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 1, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k], [i, l, m])->([i, n, o]) {i=2, j=4, k=4, l=2, m=4, n=2, o=4}, custom>} : (tensor<2x4x4xcomplex<f64>>, tensor<2x2x4xcomplex<f64>>) -> tensor<2x2x4xcomplex<f64>>
    %39 = stablehlo.transpose %31, dims = [0, 2, 1] : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %40 = stablehlo.real %39 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %41 = stablehlo.imag %39 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %42 = stablehlo.negate %41 : tensor<2x4x4xf64>
    %43 = stablehlo.complex %40, %42 : tensor<2x4x4xcomplex<f64>>
    %44 = stablehlo.custom_call @lapack_ztrsm_ffi(%43, %13) {backend_config = "", mhlo.backend_config = {diag = 85 : ui8, side = 76 : ui8, trans_x = 67 : ui8, uplo = 85 : ui8}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 1, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k], [i, l, m])->([i, n, o]) {i=2, j=4, k=4, l=4, m=2, n=4, o=2}, custom>} : (tensor<2x4x4xcomplex<f64>>, tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x2xcomplex<f64>>
    %45:3 = stablehlo.custom_call @lapack_zgetrf_ffi(%9) {backend_config = "", mhlo.backend_config = {}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i, n], [i]) {i=2, j=4, k=3, l=4, m=3, n=3}, custom>} : (tensor<2x4x3xcomplex<f64>>) -> (tensor<2x4x3xcomplex<f64>>, tensor<2x3xi32>, tensor<2xi32>)
    %c_2 = stablehlo.constant dense<1> : tensor<i32>
    %46 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<2x3xi32>
    %47 = stablehlo.subtract %45#1, %46 : tensor<2x3xi32>
    %c_3 = stablehlo.constant dense<0> : tensor<i32>
    %48 = stablehlo.broadcast_in_dim %c_3, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %49 = stablehlo.compare GE, %45#2, %48, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %50 = stablehlo.broadcast_in_dim %49, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst_4 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %51 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x3xcomplex<f64>>
    %52 = stablehlo.broadcast_in_dim %50, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x4x3xi1>
    %53 = stablehlo.select %52, %45#0, %51 : tensor<2x4x3xi1>, tensor<2x4x3xcomplex<f64>>
    %54 = stablehlo.iota dim = 1 : tensor<2x4xi32>
    %c_5 = stablehlo.constant dense<0> : tensor<i64>
    %c_6 = stablehlo.constant dense<0> : tensor<i64>
    %55:4 = stablehlo.while(%iterArg = %47, %iterArg_32 = %c_6, %iterArg_33 = %c_5, %iterArg_34 = %54) : tensor<2x3xi32>, tensor<i64>, tensor<i64>, tensor<2x4xi32>
    cond {
      %c_35 = stablehlo.constant dense<3> : tensor<i64>
      %246 = stablehlo.compare LT, %iterArg_32, %c_35, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %246 : tensor<i1>
    } do {
      %246:2 = func.call @closed_call(%iterArg, %iterArg_33, %iterArg_34) : (tensor<2x3xi32>, tensor<i64>, tensor<2x4xi32>) -> (tensor<i64>, tensor<2x4xi32>)
      %c_35 = stablehlo.constant dense<1> : tensor<i64>
      %247 = stablehlo.add %iterArg_32, %c_35 : tensor<i64>
      stablehlo.return %iterArg, %247, %246#0, %246#1 : tensor<2x3xi32>, tensor<i64>, tensor<i64>, tensor<2x4xi32>
    }
    %56:3 = stablehlo.custom_call @lapack_zgetrf_ffi(%10) {backend_config = "", mhlo.backend_config = {}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i, n], [i]) {i=2, j=2, k=4, l=2, m=4, n=2}, custom>} : (tensor<2x2x4xcomplex<f64>>) -> (tensor<2x2x4xcomplex<f64>>, tensor<2x2xi32>, tensor<2xi32>)
    %c_7 = stablehlo.constant dense<1> : tensor<i32>
    %57 = stablehlo.broadcast_in_dim %c_7, dims = [] : (tensor<i32>) -> tensor<2x2xi32>
    %58 = stablehlo.subtract %56#1, %57 : tensor<2x2xi32>
    %c_8 = stablehlo.constant dense<0> : tensor<i32>
    %59 = stablehlo.broadcast_in_dim %c_8, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %60 = stablehlo.compare GE, %56#2, %59, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %61 = stablehlo.broadcast_in_dim %60, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst_9 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %62 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<complex<f64>>) -> tensor<2x2x4xcomplex<f64>>
    %63 = stablehlo.broadcast_in_dim %61, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x2x4xi1>
    %64 = stablehlo.select %63, %56#0, %62 : tensor<2x2x4xi1>, tensor<2x2x4xcomplex<f64>>
    %65 = stablehlo.iota dim = 1 : tensor<2x2xi32>
    %c_10 = stablehlo.constant dense<0> : tensor<i64>
    %c_11 = stablehlo.constant dense<0> : tensor<i64>
    %66:4 = stablehlo.while(%iterArg = %58, %iterArg_32 = %c_11, %iterArg_33 = %c_10, %iterArg_34 = %65) : tensor<2x2xi32>, tensor<i64>, tensor<i64>, tensor<2x2xi32>
    cond {
      %c_35 = stablehlo.constant dense<2> : tensor<i64>
      %246 = stablehlo.compare LT, %iterArg_32, %c_35, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %246 : tensor<i1>
    } do {
      %246:2 = func.call @closed_call_0(%iterArg, %iterArg_33, %iterArg_34) : (tensor<2x2xi32>, tensor<i64>, tensor<2x2xi32>) -> (tensor<i64>, tensor<2x2xi32>)
      %c_35 = stablehlo.constant dense<1> : tensor<i64>
      %247 = stablehlo.add %iterArg_32, %c_35 : tensor<i64>
      stablehlo.return %iterArg, %247, %246#0, %246#1 : tensor<2x2xi32>, tensor<i64>, tensor<i64>, tensor<2x2xi32>
    }
    %67 = call @solve(%30, %13) : (tensor<2x4x4xcomplex<f64>>, tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x2xcomplex<f64>>
    %68:2 = call @qr(%9) : (tensor<2x4x3xcomplex<f64>>) -> (tensor<2x4x4xcomplex<f64>>, tensor<2x4x3xcomplex<f64>>)
    %69:3 = call @svd(%9) : (tensor<2x4x3xcomplex<f64>>) -> (tensor<2x4x3xcomplex<f64>>, tensor<2x3xf64>, tensor<2x3x3xcomplex<f64>>)
    %70:2 = call @svd_2(%10) : (tensor<2x2x4xcomplex<f64>>) -> (tensor<2x2x2xcomplex<f64>>, tensor<2x2xf64>)
    %71:2 = call @eigh(%30) : (tensor<2x4x4xcomplex<f64>>) -> (tensor<2x4xf64>, tensor<2x4x4xcomplex<f64>>)
    %72 = stablehlo.add %30, %8 : tensor<2x4x4xcomplex<f64>>
    %73:4 = stablehlo.custom_call @lapack_zgeev_ffi(%72) {backend_config = "", mhlo.backend_config = {compute_left = 86 : ui8, compute_right = 86 : ui8}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 2, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l], [i, m, n], [i, o, p], [i]) {i=2, j=4, k=4, l=4, m=4, n=4, o=4, p=4}, custom>} : (tensor<2x4x4xcomplex<f64>>) -> (tensor<2x4xcomplex<f64>>, tensor<2x4x4xcomplex<f64>>, tensor<2x4x4xcomplex<f64>>, tensor<2xi32>)
    %c_12 = stablehlo.constant dense<0> : tensor<i32>
    %74 = stablehlo.broadcast_in_dim %c_12, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %75 = stablehlo.compare EQ, %73#3, %74, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %76 = stablehlo.broadcast_in_dim %75, dims = [0] : (tensor<2xi1>) -> tensor<2x1xi1>
    %cst_13 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %77 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<complex<f64>>) -> tensor<2x4xcomplex<f64>>
    %78 = stablehlo.broadcast_in_dim %76, dims = [0, 1] : (tensor<2x1xi1>) -> tensor<2x4xi1>
    %79 = stablehlo.select %78, %73#0, %77 : tensor<2x4xi1>, tensor<2x4xcomplex<f64>>
    %80 = stablehlo.broadcast_in_dim %75, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst_14 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %81 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %82 = stablehlo.broadcast_in_dim %80, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x4x4xi1>
    %83 = stablehlo.select %82, %73#1, %81 : tensor<2x4x4xi1>, tensor<2x4x4xcomplex<f64>>
    %84 = stablehlo.broadcast_in_dim %75, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst_15 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %85 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %86 = stablehlo.broadcast_in_dim %84, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x4x4xi1>
    %87 = stablehlo.select %86, %73#2, %85 : tensor<2x4x4xi1>, tensor<2x4x4xcomplex<f64>>
    %88 = stablehlo.add %30, %8 : tensor<2x4x4xcomplex<f64>>
    %89 = stablehlo.dot_general %88, %87, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x4x4xcomplex<f64>>, tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %90 = stablehlo.broadcast_in_dim %79, dims = [0, 2] : (tensor<2x4xcomplex<f64>>) -> tensor<2x1x4xcomplex<f64>>
    %91 = stablehlo.broadcast_in_dim %90, dims = [0, 1, 2] : (tensor<2x1x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %92 = stablehlo.multiply %87, %91 : tensor<2x4x4xcomplex<f64>>
    %93 = stablehlo.subtract %89, %92 : tensor<2x4x4xcomplex<f64>>
    %94 = stablehlo.transpose %83, dims = [0, 2, 1] : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %95 = stablehlo.real %94 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %96 = stablehlo.imag %94 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %97 = stablehlo.negate %96 : tensor<2x4x4xf64>
    %98 = stablehlo.complex %95, %97 : tensor<2x4x4xcomplex<f64>>
    %99 = stablehlo.add %30, %8 : tensor<2x4x4xcomplex<f64>>
    %100 = stablehlo.dot_general %98, %99, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x4x4xcomplex<f64>>, tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %101 = stablehlo.broadcast_in_dim %79, dims = [0, 1] : (tensor<2x4xcomplex<f64>>) -> tensor<2x4x1xcomplex<f64>>
    %102 = stablehlo.transpose %83, dims = [0, 2, 1] : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %103 = stablehlo.real %102 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %104 = stablehlo.imag %102 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %105 = stablehlo.negate %104 : tensor<2x4x4xf64>
    %106 = stablehlo.complex %103, %105 : tensor<2x4x4xcomplex<f64>>
    %107 = stablehlo.broadcast_in_dim %101, dims = [0, 1, 2] : (tensor<2x4x1xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %108 = stablehlo.multiply %107, %106 : tensor<2x4x4xcomplex<f64>>
    %109 = stablehlo.subtract %100, %108 : tensor<2x4x4xcomplex<f64>>
    %110:5 = stablehlo.custom_call @lapack_zgees_ffi(%8) {backend_config = "", mhlo.backend_config = {mode = 86 : ui8, sort = 78 : ui8}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i, n, o], [i, p], [i], [i]) {i=2, j=4, k=4, l=4, m=4, n=4, o=4, p=4}, custom>} : (tensor<2x4x4xcomplex<f64>>) -> (tensor<2x4x4xcomplex<f64>>, tensor<2x4x4xcomplex<f64>>, tensor<2x4xcomplex<f64>>, tensor<2xi32>, tensor<2xi32>)
    %c_16 = stablehlo.constant dense<0> : tensor<i32>
    %111 = stablehlo.broadcast_in_dim %c_16, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %112 = stablehlo.compare EQ, %110#4, %111, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %113 = stablehlo.broadcast_in_dim %112, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst_17 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %114 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %115 = stablehlo.broadcast_in_dim %113, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x4x4xi1>
    %116 = stablehlo.select %115, %110#0, %114 : tensor<2x4x4xi1>, tensor<2x4x4xcomplex<f64>>
    %117 = stablehlo.broadcast_in_dim %112, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst_18 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %118 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %119 = stablehlo.broadcast_in_dim %117, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x4x4xi1>
    %120 = stablehlo.select %119, %110#1, %118 : tensor<2x4x4xi1>, tensor<2x4x4xcomplex<f64>>
    %121:3 = stablehlo.custom_call @lapack_zgehrd_ffi(%8) {backend_config = "", mhlo.backend_config = {high = 4 : i32, low = 1 : i32}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i, n], [i]) {i=2, j=4, k=4, l=4, m=4, n=3}, custom>} : (tensor<2x4x4xcomplex<f64>>) -> (tensor<2x4x4xcomplex<f64>>, tensor<2x3xcomplex<f64>>, tensor<2xi32>)
    %c_19 = stablehlo.constant dense<0> : tensor<i32>
    %122 = stablehlo.broadcast_in_dim %c_19, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %123 = stablehlo.compare EQ, %121#2, %122, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %124 = stablehlo.broadcast_in_dim %123, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst_20 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %125 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %126 = stablehlo.broadcast_in_dim %124, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x4x4xi1>
    %127 = stablehlo.select %126, %121#0, %125 : tensor<2x4x4xi1>, tensor<2x4x4xcomplex<f64>>
    %128 = stablehlo.broadcast_in_dim %123, dims = [0] : (tensor<2xi1>) -> tensor<2x1xi1>
    %cst_21 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %129 = stablehlo.broadcast_in_dim %cst_21, dims = [] : (tensor<complex<f64>>) -> tensor<2x3xcomplex<f64>>
    %130 = stablehlo.broadcast_in_dim %128, dims = [0, 1] : (tensor<2x1xi1>) -> tensor<2x3xi1>
    %131 = stablehlo.select %130, %121#1, %129 : tensor<2x3xi1>, tensor<2x3xcomplex<f64>>
    %132 = stablehlo.slice %13 [0:2, 0:4, 0:1] : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x1xcomplex<f64>>
    %133 = stablehlo.reshape %132 : (tensor<2x4x1xcomplex<f64>>) -> tensor<2x4xcomplex<f64>>
    %134 = stablehlo.abs %133 : (tensor<2x4xcomplex<f64>>) -> tensor<2x4xf64>
    %cst_22 = stablehlo.constant dense<3.000000e+00> : tensor<f64>
    %135 = stablehlo.broadcast_in_dim %cst_22, dims = [] : (tensor<f64>) -> tensor<2x4xf64>
    %136 = stablehlo.add %134, %135 : tensor<2x4xf64>
    %137 = stablehlo.slice %13 [0:2, 0:4, 1:2] : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x1xcomplex<f64>>
    %138 = stablehlo.reshape %137 : (tensor<2x4x1xcomplex<f64>>) -> tensor<2x4xcomplex<f64>>
    %139 = stablehlo.iota dim = 0 : tensor<4xi64>
    %c_23 = stablehlo.constant dense<0> : tensor<i64>
    %140 = stablehlo.broadcast_in_dim %c_23, dims = [] : (tensor<i64>) -> tensor<4xi64>
    %141 = stablehlo.compare NE, %139, %140, SIGNED : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>
    %142 = stablehlo.convert %141 : (tensor<4xi1>) -> tensor<4xcomplex<f64>>
    %143 = stablehlo.broadcast_in_dim %142, dims = [1] : (tensor<4xcomplex<f64>>) -> tensor<1x4xcomplex<f64>>
    %144 = stablehlo.broadcast_in_dim %143, dims = [0, 1] : (tensor<1x4xcomplex<f64>>) -> tensor<2x4xcomplex<f64>>
    %145 = stablehlo.multiply %138, %144 : tensor<2x4xcomplex<f64>>
    %146 = stablehlo.slice %13 [0:2, 0:4, 1:2] : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x1xcomplex<f64>>
    %147 = stablehlo.reshape %146 : (tensor<2x4x1xcomplex<f64>>) -> tensor<2x4xcomplex<f64>>
    %148 = stablehlo.iota dim = 0 : tensor<4xi64>
    %c_24 = stablehlo.constant dense<3> : tensor<i64>
    %149 = stablehlo.broadcast_in_dim %c_24, dims = [] : (tensor<i64>) -> tensor<4xi64>
    %150 = stablehlo.compare NE, %148, %149, SIGNED : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>
    %151 = stablehlo.convert %150 : (tensor<4xi1>) -> tensor<4xcomplex<f64>>
    %152 = stablehlo.broadcast_in_dim %151, dims = [1] : (tensor<4xcomplex<f64>>) -> tensor<1x4xcomplex<f64>>
    %153 = stablehlo.broadcast_in_dim %152, dims = [0, 1] : (tensor<1x4xcomplex<f64>>) -> tensor<2x4xcomplex<f64>>
    %154 = stablehlo.multiply %147, %153 : tensor<2x4xcomplex<f64>>
    %155 = stablehlo.convert %136 : (tensor<2x4xf64>) -> tensor<2x4xcomplex<f64>>
    %156:5 = stablehlo.custom_call @lapack_zgtsv_ffi(%145, %155, %154, %13) {backend_config = "", mhlo.backend_config = {}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>, dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>, #stablehlo.output_operand_alias<output_tuple_indices = [1], operand_index = 1, operand_tuple_indices = []>, #stablehlo.output_operand_alias<output_tuple_indices = [2], operand_index = 2, operand_tuple_indices = []>, #stablehlo.output_operand_alias<output_tuple_indices = [3], operand_index = 3, operand_tuple_indices = []>], result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>, dense<[1, 2, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j], [i, k], [i, l], [i, m, n])->([i, o], [i, p], [i, q], [i, r, s], [i]) {i=2, j=4, k=4, l=4, m=4, n=2, o=4, p=4, q=4, r=4, s=2}, custom>} : (tensor<2x4xcomplex<f64>>, tensor<2x4xcomplex<f64>>, tensor<2x4xcomplex<f64>>, tensor<2x4x2xcomplex<f64>>) -> (tensor<2x4xcomplex<f64>>, tensor<2x4xcomplex<f64>>, tensor<2x4xcomplex<f64>>, tensor<2x4x2xcomplex<f64>>, tensor<2xi32>)
    %c_25 = stablehlo.constant dense<0> : tensor<i32>
    %157 = stablehlo.broadcast_in_dim %c_25, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %158 = stablehlo.compare EQ, %156#4, %157, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %159 = stablehlo.broadcast_in_dim %158, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst_26 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %160 = stablehlo.broadcast_in_dim %cst_26, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x2xcomplex<f64>>
    %161 = stablehlo.broadcast_in_dim %159, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x4x2xi1>
    %162 = stablehlo.select %161, %156#3, %160 : tensor<2x4x2xi1>, tensor<2x4x2xcomplex<f64>>
    %163 = stablehlo.broadcast_in_dim %69#1, dims = [0, 2] : (tensor<2x3xf64>) -> tensor<2x1x3xf64>
    %164 = stablehlo.convert %163 : (tensor<2x1x3xf64>) -> tensor<2x1x3xcomplex<f64>>
    %165 = stablehlo.broadcast_in_dim %164, dims = [0, 1, 2] : (tensor<2x1x3xcomplex<f64>>) -> tensor<2x4x3xcomplex<f64>>
    %166 = stablehlo.multiply %69#0, %165 : tensor<2x4x3xcomplex<f64>>
    %167 = stablehlo.dot_general %166, %69#2, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x4x3xcomplex<f64>>, tensor<2x3x3xcomplex<f64>>) -> tensor<2x4x3xcomplex<f64>>
    %168 = stablehlo.abs %70#0 : (tensor<2x2x2xcomplex<f64>>) -> tensor<2x2x2xf64>
    %169 = call @svd_3(%8) : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4xf64>
    %170 = stablehlo.broadcast_in_dim %71#0, dims = [0, 2] : (tensor<2x4xf64>) -> tensor<2x1x4xf64>
    %171 = stablehlo.convert %170 : (tensor<2x1x4xf64>) -> tensor<2x1x4xcomplex<f64>>
    %172 = stablehlo.broadcast_in_dim %171, dims = [0, 1, 2] : (tensor<2x1x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %173 = stablehlo.multiply %71#1, %172 : tensor<2x4x4xcomplex<f64>>
    %174 = stablehlo.transpose %71#1, dims = [0, 2, 1] : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %175 = stablehlo.real %174 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %176 = stablehlo.imag %174 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %177 = stablehlo.negate %176 : tensor<2x4x4xf64>
    %178 = stablehlo.complex %175, %177 : tensor<2x4x4xcomplex<f64>>
    %179 = stablehlo.dot_general %173, %178, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x4x4xcomplex<f64>>, tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %180 = stablehlo.abs %79 : (tensor<2x4xcomplex<f64>>) -> tensor<2x4xf64>
    %181 = call @sort(%180) : (tensor<2x4xf64>) -> tensor<2x4xf64>
    %182 = stablehlo.dot_general %120, %116, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x4x4xcomplex<f64>>, tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %183 = stablehlo.transpose %120, dims = [0, 2, 1] : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %184 = stablehlo.real %183 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %185 = stablehlo.imag %183 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %186 = stablehlo.negate %185 : tensor<2x4x4xf64>
    %187 = stablehlo.complex %184, %186 : tensor<2x4x4xcomplex<f64>>
    %188 = stablehlo.dot_general %182, %187, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<2x4x4xcomplex<f64>>, tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %189:5 = stablehlo.custom_call @lapack_zhetrd_ffi(%30) {backend_config = "", mhlo.backend_config = {uplo = 76 : ui8}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>, dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i, n], [i, o], [i, p], [i]) {i=2, j=4, k=4, l=4, m=4, n=4, o=3, p=3}, custom>} : (tensor<2x4x4xcomplex<f64>>) -> (tensor<2x4x4xcomplex<f64>>, tensor<2x4xf64>, tensor<2x3xf64>, tensor<2x3xcomplex<f64>>, tensor<2xi32>)
    %c_27 = stablehlo.constant dense<0> : tensor<i32>
    %190 = stablehlo.broadcast_in_dim %c_27, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %191 = stablehlo.compare EQ, %189#4, %190, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %192 = stablehlo.broadcast_in_dim %191, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst_28 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %193 = stablehlo.broadcast_in_dim %cst_28, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %194 = stablehlo.broadcast_in_dim %192, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x4x4xi1>
    %195 = stablehlo.select %194, %189#0, %193 : tensor<2x4x4xi1>, tensor<2x4x4xcomplex<f64>>
    %196 = stablehlo.broadcast_in_dim %191, dims = [0] : (tensor<2xi1>) -> tensor<2x1xi1>
    %cst_29 = stablehlo.constant dense<0x7FF8000000000000> : tensor<f64>
    %197 = stablehlo.broadcast_in_dim %cst_29, dims = [] : (tensor<f64>) -> tensor<2x4xf64>
    %198 = stablehlo.broadcast_in_dim %196, dims = [0, 1] : (tensor<2x1xi1>) -> tensor<2x4xi1>
    %199 = stablehlo.select %198, %189#1, %197 : tensor<2x4xi1>, tensor<2x4xf64>
    %200 = stablehlo.broadcast_in_dim %191, dims = [0] : (tensor<2xi1>) -> tensor<2x1xi1>
    %cst_30 = stablehlo.constant dense<0x7FF8000000000000> : tensor<f64>
    %201 = stablehlo.broadcast_in_dim %cst_30, dims = [] : (tensor<f64>) -> tensor<2x3xf64>
    %202 = stablehlo.broadcast_in_dim %200, dims = [0, 1] : (tensor<2x1xi1>) -> tensor<2x3xi1>
    %203 = stablehlo.select %202, %189#2, %201 : tensor<2x3xi1>, tensor<2x3xf64>
    %204 = stablehlo.broadcast_in_dim %191, dims = [0] : (tensor<2xi1>) -> tensor<2x1xi1>
    %cst_31 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %205 = stablehlo.broadcast_in_dim %cst_31, dims = [] : (tensor<complex<f64>>) -> tensor<2x3xcomplex<f64>>
    %206 = stablehlo.broadcast_in_dim %204, dims = [0, 1] : (tensor<2x1xi1>) -> tensor<2x3xi1>
    %207 = stablehlo.select %206, %189#3, %205 : tensor<2x3xi1>, tensor<2x3xcomplex<f64>>
    %208 = stablehlo.negate %30 : tensor<2x4x4xcomplex<f64>>
    %209 = call @cholesky(%208) : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %210 = stablehlo.real %31 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %211 = stablehlo.imag %31 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %212 = stablehlo.real %32 : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x2xf64>
    %213 = stablehlo.imag %32 : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x2xf64>
    %214 = stablehlo.real %38 : (tensor<2x2x4xcomplex<f64>>) -> tensor<2x2x4xf64>
    %215 = stablehlo.imag %38 : (tensor<2x2x4xcomplex<f64>>) -> tensor<2x2x4xf64>
    %216 = stablehlo.real %44 : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x2xf64>
    %217 = stablehlo.imag %44 : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x2xf64>
    %218 = stablehlo.real %53 : (tensor<2x4x3xcomplex<f64>>) -> tensor<2x4x3xf64>
    %219 = stablehlo.imag %53 : (tensor<2x4x3xcomplex<f64>>) -> tensor<2x4x3xf64>
    %220 = stablehlo.real %64 : (tensor<2x2x4xcomplex<f64>>) -> tensor<2x2x4xf64>
    %221 = stablehlo.imag %64 : (tensor<2x2x4xcomplex<f64>>) -> tensor<2x2x4xf64>
    %222 = stablehlo.real %67 : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x2xf64>
    %223 = stablehlo.imag %67 : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x2xf64>
    %224 = stablehlo.real %68#0 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %225 = stablehlo.imag %68#0 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %226 = stablehlo.real %68#1 : (tensor<2x4x3xcomplex<f64>>) -> tensor<2x4x3xf64>
    %227 = stablehlo.imag %68#1 : (tensor<2x4x3xcomplex<f64>>) -> tensor<2x4x3xf64>
    %228 = stablehlo.real %167 : (tensor<2x4x3xcomplex<f64>>) -> tensor<2x4x3xf64>
    %229 = stablehlo.imag %167 : (tensor<2x4x3xcomplex<f64>>) -> tensor<2x4x3xf64>
    %230 = stablehlo.real %179 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %231 = stablehlo.imag %179 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %232 = stablehlo.real %93 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %233 = stablehlo.imag %93 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %234 = stablehlo.real %109 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %235 = stablehlo.imag %109 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %236 = stablehlo.real %188 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %237 = stablehlo.imag %188 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %238 = stablehlo.real %127 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %239 = stablehlo.imag %127 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %240 = stablehlo.real %131 : (tensor<2x3xcomplex<f64>>) -> tensor<2x3xf64>
    %241 = stablehlo.imag %131 : (tensor<2x3xcomplex<f64>>) -> tensor<2x3xf64>
    %242 = stablehlo.real %162 : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x2xf64>
    %243 = stablehlo.imag %162 : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x2xf64>
    %244 = stablehlo.real %209 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %245 = stablehlo.imag %209 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    return %210, %211, %212, %213, %214, %215, %216, %217, %218, %219, %47, %55#3, %220, %221, %58, %66#3, %222, %223, %224, %225, %226, %227, %69#1, %228, %229, %70#1, %168, %169, %71#0, %230, %231, %181, %232, %233, %234, %235, %236, %237, %238, %239, %240, %241, %242, %243, %199, %203, %244, %245 : tensor<2x4x4xf64>, tensor<2x4x4xf64>, tensor<2x4x2xf64>, tensor<2x4x2xf64>, tensor<2x2x4xf64>, tensor<2x2x4xf64>, tensor<2x4x2xf64>, tensor<2x4x2xf64>, tensor<2x4x3xf64>, tensor<2x4x3xf64>, tensor<2x3xi32>, tensor<2x4xi32>, tensor<2x2x4xf64>, tensor<2x2x4xf64>, tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x4x2xf64>, tensor<2x4x2xf64>, tensor<2x4x4xf64>, tensor<2x4x4xf64>, tensor<2x4x3xf64>, tensor<2x4x3xf64>, tensor<2x3xf64>, tensor<2x4x3xf64>, tensor<2x4x3xf64>, tensor<2x2xf64>, tensor<2x2x2xf64>, tensor<2x4xf64>, tensor<2x4xf64>, tensor<2x4x4xf64>, tensor<2x4x4xf64>, tensor<2x4xf64>, tensor<2x4x4xf64>, tensor<2x4x4xf64>, tensor<2x4x4xf64>, tensor<2x4x4xf64>, tensor<2x4x4xf64>, tensor<2x4x4xf64>, tensor<2x4x4xf64>, tensor<2x4x4xf64>, tensor<2x3xf64>, tensor<2x3xf64>, tensor<2x4x2xf64>, tensor<2x4x2xf64>, tensor<2x4xf64>, tensor<2x3xf64>, tensor<2x4x4xf64>, tensor<2x4x4xf64>
  }
  func.func private @cholesky(%arg0: tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>> {
    %0 = stablehlo.transpose %arg0, dims = [0, 2, 1] : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %1 = stablehlo.real %0 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %2 = stablehlo.imag %0 : (tensor<2x4x4xcomplex<f64>>) -> tensor<2x4x4xf64>
    %3 = stablehlo.negate %2 : tensor<2x4x4xf64>
    %4 = stablehlo.complex %1, %3 : tensor<2x4x4xcomplex<f64>>
    %5 = stablehlo.add %arg0, %4 : tensor<2x4x4xcomplex<f64>>
    %cst = stablehlo.constant dense<(2.000000e+00,0.000000e+00)> : tensor<complex<f64>>
    %6 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %7 = stablehlo.divide %5, %6 : tensor<2x4x4xcomplex<f64>>
    %8:2 = stablehlo.custom_call @lapack_zpotrf_ffi(%7) {backend_config = "", mhlo.backend_config = {uplo = 76 : ui8}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i]) {i=2, j=4, k=4, l=4, m=4}, custom>} : (tensor<2x4x4xcomplex<f64>>) -> (tensor<2x4x4xcomplex<f64>>, tensor<2xi32>)
    %c = stablehlo.constant dense<0> : tensor<i32>
    %9 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %10 = stablehlo.compare EQ, %8#1, %9, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst_0 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %12 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %13 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x4x4xi1>
    %14 = stablehlo.select %13, %8#0, %12 : tensor<2x4x4xi1>, tensor<2x4x4xcomplex<f64>>
    %15 = stablehlo.iota dim = 0 : tensor<4x4xi64>
    %c_1 = stablehlo.constant dense<0> : tensor<i64>
    %16 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i64>) -> tensor<4x4xi64>
    %17 = stablehlo.add %15, %16 : tensor<4x4xi64>
    %18 = stablehlo.iota dim = 1 : tensor<4x4xi64>
    %19 = stablehlo.compare GE, %17, %18, SIGNED : (tensor<4x4xi64>, tensor<4x4xi64>) -> tensor<4x4xi1>
    %20 = stablehlo.broadcast_in_dim %19, dims = [1, 2] : (tensor<4x4xi1>) -> tensor<2x4x4xi1>
    %cst_2 = stablehlo.constant dense<(0.000000e+00,0.000000e+00)> : tensor<complex<f64>>
    %21 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %22 = stablehlo.select %20, %14, %21 : tensor<2x4x4xi1>, tensor<2x4x4xcomplex<f64>>
    return %22 : tensor<2x4x4xcomplex<f64>>
  }
  func.func private @closed_call(%arg0: tensor<2x3xi32>, %arg1: tensor<i64>, %arg2: tensor<2x4xi32>) -> (tensor<i64>, tensor<2x4xi32>) {
    %c = stablehlo.constant dense<1> : tensor<i64>
    %0 = stablehlo.add %arg1, %c : tensor<i64>
    %c_0 = stablehlo.constant dense<0> : tensor<i64>
    %1 = stablehlo.compare LT, %arg1, %c_0, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %2 = stablehlo.convert %arg1 : tensor<i64>
    %c_1 = stablehlo.constant dense<3> : tensor<i64>
    %3 = stablehlo.add %2, %c_1 : tensor<i64>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<i1>, tensor<i64>
    %5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<i64>) -> tensor<1xi64>
    %6 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], start_index_map = [1]>, indices_are_sorted = true, slice_sizes = array<i64: 2, 1>}> : (tensor<2x3xi32>, tensor<1xi64>) -> tensor<2x1xi32>
    %7 = stablehlo.reshape %6 : (tensor<2x1xi32>) -> tensor<2xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i64>
    %8 = stablehlo.compare LT, %arg1, %c_2, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %9 = stablehlo.convert %arg1 : tensor<i64>
    %c_3 = stablehlo.constant dense<4> : tensor<i64>
    %10 = stablehlo.add %9, %c_3 : tensor<i64>
    %11 = stablehlo.select %8, %10, %arg1 : tensor<i1>, tensor<i64>
    %12 = stablehlo.broadcast_in_dim %11, dims = [] : (tensor<i64>) -> tensor<1xi64>
    %13 = "stablehlo.gather"(%arg2, %12) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], start_index_map = [1]>, indices_are_sorted = true, slice_sizes = array<i64: 2, 1>}> : (tensor<2x4xi32>, tensor<1xi64>) -> tensor<2x1xi32>
    %14 = stablehlo.reshape %13 : (tensor<2x1xi32>) -> tensor<2xi32>
    %c_4 = stablehlo.constant dense<0> : tensor<i32>
    %15 = stablehlo.broadcast_in_dim %c_4, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %16 = stablehlo.compare LT, %7, %15, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %c_5 = stablehlo.constant dense<4> : tensor<i32>
    %17 = stablehlo.broadcast_in_dim %c_5, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %18 = stablehlo.add %7, %17 : tensor<2xi32>
    %19 = stablehlo.select %16, %18, %7 : tensor<2xi1>, tensor<2xi32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [0] : (tensor<2xi32>) -> tensor<2x1xi32>
    %21 = "stablehlo.gather"(%arg2, %20) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1>, indices_are_sorted = true, slice_sizes = array<i64: 1, 1>}> : (tensor<2x4xi32>, tensor<2x1xi32>) -> tensor<2x1xi32>
    %22 = stablehlo.reshape %21 : (tensor<2x1xi32>) -> tensor<2xi32>
    %c_6 = stablehlo.constant dense<0> : tensor<i64>
    %23 = stablehlo.compare LT, %arg1, %c_6, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %c_7 = stablehlo.constant dense<4> : tensor<i64>
    %24 = stablehlo.add %arg1, %c_7 : tensor<i64>
    %25 = stablehlo.select %23, %24, %arg1 : tensor<i1>, tensor<i64>
    %26 = stablehlo.convert %25 : (tensor<i64>) -> tensor<i32>
    %27 = stablehlo.broadcast_in_dim %26, dims = [] : (tensor<i32>) -> tensor<1xi32>
    %28 = "stablehlo.scatter"(%arg2, %27, %22) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1]>, unique_indices = true}> ({
    ^bb0(%arg3: tensor<i32>, %arg4: tensor<i32>):
      stablehlo.return %arg4 : tensor<i32>
    }) : (tensor<2x4xi32>, tensor<1xi32>, tensor<2xi32>) -> tensor<2x4xi32>
    %c_8 = stablehlo.constant dense<0> : tensor<i32>
    %29 = stablehlo.broadcast_in_dim %c_8, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %30 = stablehlo.compare LT, %7, %29, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %c_9 = stablehlo.constant dense<4> : tensor<i32>
    %31 = stablehlo.broadcast_in_dim %c_9, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %32 = stablehlo.add %7, %31 : tensor<2xi32>
    %33 = stablehlo.select %30, %32, %7 : tensor<2xi1>, tensor<2xi32>
    %34 = stablehlo.broadcast_in_dim %33, dims = [0] : (tensor<2xi32>) -> tensor<2x1xi32>
    %35 = "stablehlo.scatter"(%28, %34, %14) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%arg3: tensor<i32>, %arg4: tensor<i32>):
      stablehlo.return %arg4 : tensor<i32>
    }) : (tensor<2x4xi32>, tensor<2x1xi32>, tensor<2xi32>) -> tensor<2x4xi32>
    return %0, %35 : tensor<i64>, tensor<2x4xi32>
  }
  func.func private @closed_call_0(%arg0: tensor<2x2xi32>, %arg1: tensor<i64>, %arg2: tensor<2x2xi32>) -> (tensor<i64>, tensor<2x2xi32>) {
    %c = stablehlo.constant dense<1> : tensor<i64>
    %0 = stablehlo.add %arg1, %c : tensor<i64>
    %c_0 = stablehlo.constant dense<0> : tensor<i64>
    %1 = stablehlo.compare LT, %arg1, %c_0, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %2 = stablehlo.convert %arg1 : tensor<i64>
    %c_1 = stablehlo.constant dense<2> : tensor<i64>
    %3 = stablehlo.add %2, %c_1 : tensor<i64>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<i1>, tensor<i64>
    %5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<i64>) -> tensor<1xi64>
    %6 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], start_index_map = [1]>, indices_are_sorted = true, slice_sizes = array<i64: 2, 1>}> : (tensor<2x2xi32>, tensor<1xi64>) -> tensor<2x1xi32>
    %7 = stablehlo.reshape %6 : (tensor<2x1xi32>) -> tensor<2xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i64>
    %8 = stablehlo.compare LT, %arg1, %c_2, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %9 = stablehlo.convert %arg1 : tensor<i64>
    %c_3 = stablehlo.constant dense<2> : tensor<i64>
    %10 = stablehlo.add %9, %c_3 : tensor<i64>
    %11 = stablehlo.select %8, %10, %arg1 : tensor<i1>, tensor<i64>
    %12 = stablehlo.broadcast_in_dim %11, dims = [] : (tensor<i64>) -> tensor<1xi64>
    %13 = "stablehlo.gather"(%arg2, %12) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], start_index_map = [1]>, indices_are_sorted = true, slice_sizes = array<i64: 2, 1>}> : (tensor<2x2xi32>, tensor<1xi64>) -> tensor<2x1xi32>
    %14 = stablehlo.reshape %13 : (tensor<2x1xi32>) -> tensor<2xi32>
    %c_4 = stablehlo.constant dense<0> : tensor<i32>
    %15 = stablehlo.broadcast_in_dim %c_4, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %16 = stablehlo.compare LT, %7, %15, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %c_5 = stablehlo.constant dense<2> : tensor<i32>
    %17 = stablehlo.broadcast_in_dim %c_5, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %18 = stablehlo.add %7, %17 : tensor<2xi32>
    %19 = stablehlo.select %16, %18, %7 : tensor<2xi1>, tensor<2xi32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [0] : (tensor<2xi32>) -> tensor<2x1xi32>
    %21 = "stablehlo.gather"(%arg2, %20) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1>, indices_are_sorted = true, slice_sizes = array<i64: 1, 1>}> : (tensor<2x2xi32>, tensor<2x1xi32>) -> tensor<2x1xi32>
    %22 = stablehlo.reshape %21 : (tensor<2x1xi32>) -> tensor<2xi32>
    %c_6 = stablehlo.constant dense<0> : tensor<i64>
    %23 = stablehlo.compare LT, %arg1, %c_6, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %c_7 = stablehlo.constant dense<2> : tensor<i64>
    %24 = stablehlo.add %arg1, %c_7 : tensor<i64>
    %25 = stablehlo.select %23, %24, %arg1 : tensor<i1>, tensor<i64>
    %26 = stablehlo.convert %25 : (tensor<i64>) -> tensor<i32>
    %27 = stablehlo.broadcast_in_dim %26, dims = [] : (tensor<i32>) -> tensor<1xi32>
    %28 = "stablehlo.scatter"(%arg2, %27, %22) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1]>, unique_indices = true}> ({
    ^bb0(%arg3: tensor<i32>, %arg4: tensor<i32>):
      stablehlo.return %arg4 : tensor<i32>
    }) : (tensor<2x2xi32>, tensor<1xi32>, tensor<2xi32>) -> tensor<2x2xi32>
    %c_8 = stablehlo.constant dense<0> : tensor<i32>
    %29 = stablehlo.broadcast_in_dim %c_8, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %30 = stablehlo.compare LT, %7, %29, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %c_9 = stablehlo.constant dense<2> : tensor<i32>
    %31 = stablehlo.broadcast_in_dim %c_9, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %32 = stablehlo.add %7, %31 : tensor<2xi32>
    %33 = stablehlo.select %30, %32, %7 : tensor<2xi1>, tensor<2xi32>
    %34 = stablehlo.broadcast_in_dim %33, dims = [0] : (tensor<2xi32>) -> tensor<2x1xi32>
    %35 = "stablehlo.scatter"(%28, %34, %14) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%arg3: tensor<i32>, %arg4: tensor<i32>):
      stablehlo.return %arg4 : tensor<i32>
    }) : (tensor<2x2xi32>, tensor<2x1xi32>, tensor<2xi32>) -> tensor<2x2xi32>
    return %0, %35 : tensor<i64>, tensor<2x2xi32>
  }
  func.func private @solve(%arg0: tensor<2x4x4xcomplex<f64>>, %arg1: tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x2xcomplex<f64>> {
    %0:3 = stablehlo.custom_call @lapack_zgetrf_ffi(%arg0) {backend_config = "", mhlo.backend_config = {}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i, n], [i]) {i=2, j=4, k=4, l=4, m=4, n=4}, custom>} : (tensor<2x4x4xcomplex<f64>>) -> (tensor<2x4x4xcomplex<f64>>, tensor<2x4xi32>, tensor<2xi32>)
    %c = stablehlo.constant dense<1> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2x4xi32>
    %2 = stablehlo.subtract %0#1, %1 : tensor<2x4xi32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %3 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %4 = stablehlo.compare GE, %0#2, %3, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %6 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %7 = stablehlo.broadcast_in_dim %5, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x4x4xi1>
    %8 = stablehlo.select %7, %0#0, %6 : tensor<2x4x4xi1>, tensor<2x4x4xcomplex<f64>>
    %9 = stablehlo.iota dim = 1 : tensor<2x4xi32>
    %c_1 = stablehlo.constant dense<0> : tensor<i64>
    %c_2 = stablehlo.constant dense<0> : tensor<i64>
    %10:4 = stablehlo.while(%iterArg = %2, %iterArg_3 = %c_2, %iterArg_4 = %c_1, %iterArg_5 = %9) : tensor<2x4xi32>, tensor<i64>, tensor<i64>, tensor<2x4xi32>
    cond {
      %c_6 = stablehlo.constant dense<4> : tensor<i64>
      %14 = stablehlo.compare LT, %iterArg_3, %c_6, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %14 : tensor<i1>
    } do {
      %14:2 = func.call @closed_call_1(%iterArg, %iterArg_4, %iterArg_5) : (tensor<2x4xi32>, tensor<i64>, tensor<2x4xi32>) -> (tensor<i64>, tensor<2x4xi32>)
      %c_6 = stablehlo.constant dense<1> : tensor<i64>
      %15 = stablehlo.add %iterArg_3, %c_6 : tensor<i64>
      stablehlo.return %iterArg, %15, %14#0, %14#1 : tensor<2x4xi32>, tensor<i64>, tensor<i64>, tensor<2x4xi32>
    }
    %11 = stablehlo.transpose %arg1, dims = [0, 2, 1] : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x2x4xcomplex<f64>>
    %12 = call @_lu_solve(%8, %10#3, %11) : (tensor<2x4x4xcomplex<f64>>, tensor<2x4xi32>, tensor<2x2x4xcomplex<f64>>) -> tensor<2x2x4xcomplex<f64>>
    %13 = stablehlo.transpose %12, dims = [0, 2, 1] : (tensor<2x2x4xcomplex<f64>>) -> tensor<2x4x2xcomplex<f64>>
    return %13 : tensor<2x4x2xcomplex<f64>>
  }
  func.func private @closed_call_1(%arg0: tensor<2x4xi32>, %arg1: tensor<i64>, %arg2: tensor<2x4xi32>) -> (tensor<i64>, tensor<2x4xi32>) {
    %c = stablehlo.constant dense<1> : tensor<i64>
    %0 = stablehlo.add %arg1, %c : tensor<i64>
    %c_0 = stablehlo.constant dense<0> : tensor<i64>
    %1 = stablehlo.compare LT, %arg1, %c_0, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %2 = stablehlo.convert %arg1 : tensor<i64>
    %c_1 = stablehlo.constant dense<4> : tensor<i64>
    %3 = stablehlo.add %2, %c_1 : tensor<i64>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<i1>, tensor<i64>
    %5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<i64>) -> tensor<1xi64>
    %6 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], start_index_map = [1]>, indices_are_sorted = true, slice_sizes = array<i64: 2, 1>}> : (tensor<2x4xi32>, tensor<1xi64>) -> tensor<2x1xi32>
    %7 = stablehlo.reshape %6 : (tensor<2x1xi32>) -> tensor<2xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i64>
    %8 = stablehlo.compare LT, %arg1, %c_2, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %9 = stablehlo.convert %arg1 : tensor<i64>
    %c_3 = stablehlo.constant dense<4> : tensor<i64>
    %10 = stablehlo.add %9, %c_3 : tensor<i64>
    %11 = stablehlo.select %8, %10, %arg1 : tensor<i1>, tensor<i64>
    %12 = stablehlo.broadcast_in_dim %11, dims = [] : (tensor<i64>) -> tensor<1xi64>
    %13 = "stablehlo.gather"(%arg2, %12) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], start_index_map = [1]>, indices_are_sorted = true, slice_sizes = array<i64: 2, 1>}> : (tensor<2x4xi32>, tensor<1xi64>) -> tensor<2x1xi32>
    %14 = stablehlo.reshape %13 : (tensor<2x1xi32>) -> tensor<2xi32>
    %c_4 = stablehlo.constant dense<0> : tensor<i32>
    %15 = stablehlo.broadcast_in_dim %c_4, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %16 = stablehlo.compare LT, %7, %15, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %c_5 = stablehlo.constant dense<4> : tensor<i32>
    %17 = stablehlo.broadcast_in_dim %c_5, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %18 = stablehlo.add %7, %17 : tensor<2xi32>
    %19 = stablehlo.select %16, %18, %7 : tensor<2xi1>, tensor<2xi32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [0] : (tensor<2xi32>) -> tensor<2x1xi32>
    %21 = "stablehlo.gather"(%arg2, %20) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1>, indices_are_sorted = true, slice_sizes = array<i64: 1, 1>}> : (tensor<2x4xi32>, tensor<2x1xi32>) -> tensor<2x1xi32>
    %22 = stablehlo.reshape %21 : (tensor<2x1xi32>) -> tensor<2xi32>
    %c_6 = stablehlo.constant dense<0> : tensor<i64>
    %23 = stablehlo.compare LT, %arg1, %c_6, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %c_7 = stablehlo.constant dense<4> : tensor<i64>
    %24 = stablehlo.add %arg1, %c_7 : tensor<i64>
    %25 = stablehlo.select %23, %24, %arg1 : tensor<i1>, tensor<i64>
    %26 = stablehlo.convert %25 : (tensor<i64>) -> tensor<i32>
    %27 = stablehlo.broadcast_in_dim %26, dims = [] : (tensor<i32>) -> tensor<1xi32>
    %28 = "stablehlo.scatter"(%arg2, %27, %22) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1]>, unique_indices = true}> ({
    ^bb0(%arg3: tensor<i32>, %arg4: tensor<i32>):
      stablehlo.return %arg4 : tensor<i32>
    }) : (tensor<2x4xi32>, tensor<1xi32>, tensor<2xi32>) -> tensor<2x4xi32>
    %c_8 = stablehlo.constant dense<0> : tensor<i32>
    %29 = stablehlo.broadcast_in_dim %c_8, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %30 = stablehlo.compare LT, %7, %29, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %c_9 = stablehlo.constant dense<4> : tensor<i32>
    %31 = stablehlo.broadcast_in_dim %c_9, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %32 = stablehlo.add %7, %31 : tensor<2xi32>
    %33 = stablehlo.select %30, %32, %7 : tensor<2xi1>, tensor<2xi32>
    %34 = stablehlo.broadcast_in_dim %33, dims = [0] : (tensor<2xi32>) -> tensor<2x1xi32>
    %35 = "stablehlo.scatter"(%28, %34, %14) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%arg3: tensor<i32>, %arg4: tensor<i32>):
      stablehlo.return %arg4 : tensor<i32>
    }) : (tensor<2x4xi32>, tensor<2x1xi32>, tensor<2xi32>) -> tensor<2x4xi32>
    return %0, %35 : tensor<i64>, tensor<2x4xi32>
  }
  func.func private @_lu_solve(%arg0: tensor<2x4x4xcomplex<f64>>, %arg1: tensor<2x4xi32>, %arg2: tensor<2x2x4xcomplex<f64>>) -> tensor<2x2x4xcomplex<f64>> {
    %0 = stablehlo.broadcast_in_dim %arg2, dims = [0, 1, 2] : (tensor<2x2x4xcomplex<f64>>) -> tensor<2x2x4x1xcomplex<f64>>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2x4xi32>
    %2 = stablehlo.compare LT, %arg1, %1, SIGNED : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi1>
    %c_0 = stablehlo.constant dense<4> : tensor<i32>
    %3 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<2x4xi32>
    %4 = stablehlo.add %arg1, %3 : tensor<2x4xi32>
    %5 = stablehlo.select %2, %4, %arg1 : tensor<2x4xi1>, tensor<2x4xi32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1] : (tensor<2x4xi32>) -> tensor<2x4x1xi32>
    %7 = "stablehlo.gather"(%0, %6) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 3], collapsed_slice_dims = [2], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [2], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 2, 1, 1>}> : (tensor<2x2x4x1xcomplex<f64>>, tensor<2x4x1xi32>) -> tensor<2x2x4x1xcomplex<f64>>
    %8 = stablehlo.transpose %7, dims = [0, 2, 3, 1] : (tensor<2x2x4x1xcomplex<f64>>) -> tensor<2x4x1x2xcomplex<f64>>
    %9 = stablehlo.reshape %8 : (tensor<2x4x1x2xcomplex<f64>>) -> tensor<2x4x2xcomplex<f64>>
    %10 = stablehlo.custom_call @lapack_ztrsm_ffi(%arg0, %9) {backend_config = "", mhlo.backend_config = {diag = 85 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 76 : ui8}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 1, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k], [i, l, m])->([i, n, o]) {i=2, j=4, k=4, l=4, m=2, n=4, o=2}, custom>} : (tensor<2x4x4xcomplex<f64>>, tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x2xcomplex<f64>>
    %11 = stablehlo.reshape %10 : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x1x2xcomplex<f64>>
    %12 = stablehlo.reshape %11 : (tensor<2x4x1x2xcomplex<f64>>) -> tensor<2x4x2xcomplex<f64>>
    %13 = stablehlo.custom_call @lapack_ztrsm_ffi(%arg0, %12) {backend_config = "", mhlo.backend_config = {diag = 78 : ui8, side = 76 : ui8, trans_x = 78 : ui8, uplo = 85 : ui8}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 1, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k], [i, l, m])->([i, n, o]) {i=2, j=4, k=4, l=4, m=2, n=4, o=2}, custom>} : (tensor<2x4x4xcomplex<f64>>, tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x2xcomplex<f64>>
    %14 = stablehlo.reshape %13 : (tensor<2x4x2xcomplex<f64>>) -> tensor<2x4x1x2xcomplex<f64>>
    %15 = stablehlo.transpose %14, dims = [0, 3, 1, 2] : (tensor<2x4x1x2xcomplex<f64>>) -> tensor<2x2x4x1xcomplex<f64>>
    %16 = stablehlo.reshape %15 : (tensor<2x2x4x1xcomplex<f64>>) -> tensor<2x2x4xcomplex<f64>>
    return %16 : tensor<2x2x4xcomplex<f64>>
  }
  func.func private @qr(%arg0: tensor<2x4x3xcomplex<f64>>) -> (tensor<2x4x4xcomplex<f64>>, tensor<2x4x3xcomplex<f64>>) {
    %0:2 = stablehlo.custom_call @lapack_zgeqrf_ffi(%arg0) {backend_config = "", mhlo.backend_config = {}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i, n]) {i=2, j=4, k=3, l=4, m=3, n=3}, custom>} : (tensor<2x4x3xcomplex<f64>>) -> (tensor<2x4x3xcomplex<f64>>, tensor<2x3xcomplex<f64>>)
    %cst = stablehlo.constant dense<(0.000000e+00,0.000000e+00)> : tensor<complex<f64>>
    %1 = stablehlo.pad %0#0, %cst, low = [0, 0, 0], high = [0, 0, 1], interior = [0, 0, 0] : (tensor<2x4x3xcomplex<f64>>, tensor<complex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %2 = stablehlo.custom_call @lapack_zungqr_ffi(%1, %0#1) {backend_config = "", mhlo.backend_config = {}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k], [i, l])->([i, m, n]) {i=2, j=4, k=4, l=3, m=4, n=4}, custom>} : (tensor<2x4x4xcomplex<f64>>, tensor<2x3xcomplex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %3 = stablehlo.iota dim = 0 : tensor<4x3xi64>
    %c = stablehlo.constant dense<-1> : tensor<i64>
    %4 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i64>) -> tensor<4x3xi64>
    %5 = stablehlo.add %3, %4 : tensor<4x3xi64>
    %6 = stablehlo.iota dim = 1 : tensor<4x3xi64>
    %7 = stablehlo.compare GE, %5, %6, SIGNED : (tensor<4x3xi64>, tensor<4x3xi64>) -> tensor<4x3xi1>
    %8 = stablehlo.broadcast_in_dim %7, dims = [1, 2] : (tensor<4x3xi1>) -> tensor<2x4x3xi1>
    %cst_0 = stablehlo.constant dense<(0.000000e+00,0.000000e+00)> : tensor<complex<f64>>
    %9 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x3xcomplex<f64>>
    %10 = stablehlo.select %8, %9, %0#0 : tensor<2x4x3xi1>, tensor<2x4x3xcomplex<f64>>
    return %2, %10 : tensor<2x4x4xcomplex<f64>>, tensor<2x4x3xcomplex<f64>>
  }
  func.func private @svd(%arg0: tensor<2x4x3xcomplex<f64>>) -> (tensor<2x4x3xcomplex<f64>>, tensor<2x3xf64>, tensor<2x3x3xcomplex<f64>>) {
    %0:5 = stablehlo.custom_call @lapack_zgesdd_ffi(%arg0) {backend_config = "", mhlo.backend_config = {mode = 83 : ui8}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>, dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 2, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i, n], [i, o, p], [i, q, r], [i]) {i=2, j=4, k=3, l=4, m=3, n=3, o=4, p=3, q=3, r=3}, custom>} : (tensor<2x4x3xcomplex<f64>>) -> (tensor<2x4x3xcomplex<f64>>, tensor<2x3xf64>, tensor<2x4x3xcomplex<f64>>, tensor<2x3x3xcomplex<f64>>, tensor<2xi32>)
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %2 = stablehlo.compare EQ, %0#4, %1, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<2xi1>) -> tensor<2x1xi1>
    %cst = stablehlo.constant dense<0x7FF8000000000000> : tensor<f64>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f64>) -> tensor<2x3xf64>
    %5 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<2x1xi1>) -> tensor<2x3xi1>
    %6 = stablehlo.select %5, %0#1, %4 : tensor<2x3xi1>, tensor<2x3xf64>
    %7 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst_0 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %8 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x3xcomplex<f64>>
    %9 = stablehlo.broadcast_in_dim %7, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x4x3xi1>
    %10 = stablehlo.select %9, %0#2, %8 : tensor<2x4x3xi1>, tensor<2x4x3xcomplex<f64>>
    %11 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst_1 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %12 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<complex<f64>>) -> tensor<2x3x3xcomplex<f64>>
    %13 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x3x3xi1>
    %14 = stablehlo.select %13, %0#3, %12 : tensor<2x3x3xi1>, tensor<2x3x3xcomplex<f64>>
    return %10, %6, %14 : tensor<2x4x3xcomplex<f64>>, tensor<2x3xf64>, tensor<2x3x3xcomplex<f64>>
  }
  func.func private @svd_2(%arg0: tensor<2x2x4xcomplex<f64>>) -> (tensor<2x2x2xcomplex<f64>>, tensor<2x2xf64>) {
    %0:5 = stablehlo.custom_call @lapack_zgesdd_ffi(%arg0) {backend_config = "", mhlo.backend_config = {mode = 65 : ui8}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>, dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 2, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i, n], [i, o, p], [i, q, r], [i]) {i=2, j=2, k=4, l=2, m=4, n=2, o=2, p=2, q=4, r=4}, custom>} : (tensor<2x2x4xcomplex<f64>>) -> (tensor<2x2x4xcomplex<f64>>, tensor<2x2xf64>, tensor<2x2x2xcomplex<f64>>, tensor<2x4x4xcomplex<f64>>, tensor<2xi32>)
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %2 = stablehlo.compare EQ, %0#4, %1, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<2xi1>) -> tensor<2x1xi1>
    %cst = stablehlo.constant dense<0x7FF8000000000000> : tensor<f64>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f64>) -> tensor<2x2xf64>
    %5 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<2x1xi1>) -> tensor<2x2xi1>
    %6 = stablehlo.select %5, %0#1, %4 : tensor<2x2xi1>, tensor<2x2xf64>
    %7 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst_0 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %8 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<complex<f64>>) -> tensor<2x2x2xcomplex<f64>>
    %9 = stablehlo.broadcast_in_dim %7, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x2x2xi1>
    %10 = stablehlo.select %9, %0#2, %8 : tensor<2x2x2xi1>, tensor<2x2x2xcomplex<f64>>
    %11 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst_1 = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %12 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %13 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x4x4xi1>
    %14 = stablehlo.select %13, %0#3, %12 : tensor<2x4x4xi1>, tensor<2x4x4xcomplex<f64>>
    return %10, %6 : tensor<2x2x2xcomplex<f64>>, tensor<2x2xf64>
  }
  func.func private @eigh(%arg0: tensor<2x4x4xcomplex<f64>>) -> (tensor<2x4xf64>, tensor<2x4x4xcomplex<f64>>) {
    %0:3 = stablehlo.custom_call @lapack_zheevd_ffi(%arg0) {backend_config = "", mhlo.backend_config = {mode = 86 : ui8, uplo = 85 : ui8}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i, n], [i]) {i=2, j=4, k=4, l=4, m=4, n=4}, custom>} : (tensor<2x4x4xcomplex<f64>>) -> (tensor<2x4x4xcomplex<f64>>, tensor<2x4xf64>, tensor<2xi32>)
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %2 = stablehlo.compare EQ, %0#2, %1, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<2xi1>) -> tensor<2x1x1xi1>
    %cst = stablehlo.constant dense<(0x7FF8000000000000,0x7FF8000000000000)> : tensor<complex<f64>>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<complex<f64>>) -> tensor<2x4x4xcomplex<f64>>
    %5 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x1x1xi1>) -> tensor<2x4x4xi1>
    %6 = stablehlo.select %5, %0#0, %4 : tensor<2x4x4xi1>, tensor<2x4x4xcomplex<f64>>
    %7 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<2xi1>) -> tensor<2x1xi1>
    %cst_0 = stablehlo.constant dense<0x7FF8000000000000> : tensor<f64>
    %8 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f64>) -> tensor<2x4xf64>
    %9 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<2x1xi1>) -> tensor<2x4xi1>
    %10 = stablehlo.select %9, %0#1, %8 : tensor<2x4xi1>, tensor<2x4xf64>
    return %10, %6 : tensor<2x4xf64>, tensor<2x4x4xcomplex<f64>>
  }
  func.func private @svd_3(%arg0: tensor<2x4x4xcomplex<f64>>) -> tensor<2x4xf64> {
    %0:5 = stablehlo.custom_call @lapack_zgesdd_ffi(%arg0) {backend_config = "", mhlo.backend_config = {mode = 78 : ui8}, mhlo.frontend_attributes = {num_batch_dims = "1"}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>, dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 2, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>], sdy.sharding_rule = #sdy.op_sharding_rule<([i, j, k])->([i, l, m], [i, n], [i, o, p], [i, q, r], [i]) {i=2, j=4, k=4, l=4, m=4, n=4, o=4, p=4, q=4, r=4}, custom>} : (tensor<2x4x4xcomplex<f64>>) -> (tensor<2x4x4xcomplex<f64>>, tensor<2x4xf64>, tensor<2x4x4xcomplex<f64>>, tensor<2x4x4xcomplex<f64>>, tensor<2xi32>)
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %2 = stablehlo.compare EQ, %0#4, %1, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<2xi1>) -> tensor<2x1xi1>
    %cst = stablehlo.constant dense<0x7FF8000000000000> : tensor<f64>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f64>) -> tensor<2x4xf64>
    %5 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<2x1xi1>) -> tensor<2x4xi1>
    %6 = stablehlo.select %5, %0#1, %4 : tensor<2x4xi1>, tensor<2x4xf64>
    return %6 : tensor<2x4xf64>
  }
  func.func private @sort(%arg0: tensor<2x4xf64>) -> tensor<2x4xf64> {
    %0 = "stablehlo.sort"(%arg0) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%arg1: tensor<f64>, %arg2: tensor<f64>):
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f64>
      %1 = stablehlo.compare EQ, %arg1, %cst, FLOAT : (tensor<f64>, tensor<f64>) -> tensor<i1>
      %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f64>
      %2 = stablehlo.select %1, %cst_0, %arg1 : tensor<i1>, tensor<f64>
      %3 = stablehlo.compare NE, %arg1, %arg1, FLOAT : (tensor<f64>, tensor<f64>) -> tensor<i1>
      %cst_1 = stablehlo.constant dense<0x7FF8000000000000> : tensor<f64>
      %4 = stablehlo.select %3, %cst_1, %2 : tensor<i1>, tensor<f64>
      %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f64>
      %5 = stablehlo.compare EQ, %arg2, %cst_2, FLOAT : (tensor<f64>, tensor<f64>) -> tensor<i1>
      %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f64>
      %6 = stablehlo.select %5, %cst_3, %arg2 : tensor<i1>, tensor<f64>
      %7 = stablehlo.compare NE, %arg2, %arg2, FLOAT : (tensor<f64>, tensor<f64>) -> tensor<i1>
      %cst_4 = stablehlo.constant dense<0x7FF8000000000000> : tensor<f64>
      %8 = stablehlo.select %7, %cst_4, %6 : tensor<i1>, tensor<f64>
      %9 = stablehlo.compare LT, %4, %8, TOTALORDER : (tensor<f64>, tensor<f64>) -> tensor<i1>
      stablehlo.return %9 : tensor<i1>
    }) : (tensor<2x4xf64>) -> tensor<2x4xf64>
    return %0 : tensor<2x4xf64>
  }
}
