export function reportView() {}
