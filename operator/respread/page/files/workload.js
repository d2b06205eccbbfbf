export function workloadView() {}
